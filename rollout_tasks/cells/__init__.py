"""Cells: isolated processes for untrusted code and data, without rights or keys, and with only the network they are given."""
