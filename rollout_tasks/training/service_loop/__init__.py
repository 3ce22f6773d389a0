"""The service loop: rolls out items again and again for a trainer, each item's group as a run of its own."""
