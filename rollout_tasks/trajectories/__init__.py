"""The record of an episode: written step by step, readable up to the last complete step after any crash."""
