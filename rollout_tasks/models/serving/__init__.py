"""Servers of a model that this machine runs for a pool: `vllm serve`, started, watched, started again and ended."""
