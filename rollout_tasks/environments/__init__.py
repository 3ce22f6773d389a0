"""Environments that agents act in. One module per environment; `base.py` is the contract, `registry` finds them by name."""
