"""What trainers need of runs: rewarded traces, and files that other frameworks read."""
