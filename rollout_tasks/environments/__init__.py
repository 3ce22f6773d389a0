"""What an agent acts in. One module an environment; `base.py` is the contract, `registry` finds them by name."""
