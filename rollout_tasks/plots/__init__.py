"""Plots of runs, drawn with matplotlib from plain numbers. Reads no run's folder; matplotlib is optional (extra `plots`)."""
