"""A run's life: submitted, stored, watched, finalised, repaired. Redis coordinates, the run's folder is the truth."""
