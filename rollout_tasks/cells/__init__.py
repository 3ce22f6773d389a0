"""Processes for code and data that are not ours: a cell has no rights, no keys, and of the network only what it is handed."""
