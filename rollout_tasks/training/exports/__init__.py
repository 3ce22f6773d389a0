"""Files of a run for trainers: one module for each format."""
