"""Runs untrusted Python, isolated by bubblewrap. Other packages use `interpreter`."""
