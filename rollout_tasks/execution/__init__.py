"""Executes one rollout: claims it, attempts it, and commits its verdict. Begin reading at `rollout`."""
