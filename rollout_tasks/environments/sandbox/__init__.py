"""Runs Python that nobody vouches for, isolated by bubblewrap: `interpreter` is what others use."""
