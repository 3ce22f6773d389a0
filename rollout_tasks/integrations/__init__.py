"""Trainers that this pipeline works in; each module can be imported only where the trainer's package is."""
