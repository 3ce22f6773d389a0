"""Agents: they turn a model into something that acts. One module per agent; `base.py` is the contract."""
