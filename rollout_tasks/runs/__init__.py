"""Runs: submitted, stored, watched, finalised, reconciled. Redis decides while one is under way; its folder is the record."""
