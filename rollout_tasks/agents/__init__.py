"""Agents, each of which lets a model act in an environment; `base.py` is their contract."""
