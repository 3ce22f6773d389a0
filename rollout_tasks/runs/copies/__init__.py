"""Copies of runs' folders, and of exports, at any URL that fsspec knows: runs are rolled out in folders, not there."""
