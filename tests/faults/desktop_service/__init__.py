"""Faults at single points of a desktop service: its messages, its files, its requests to Redis, and its clients."""
