"""Replicas of one served model: which there are, and which of them gets a session's next call."""
