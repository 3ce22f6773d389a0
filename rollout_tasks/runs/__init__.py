"""Runs: submitted, stored, watched, finalised, reconciled. Redis coordinates; the run's folder is the truth."""
