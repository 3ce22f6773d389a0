"""Finds passages of a corpus: lexically, by embeddings, or both. Knows nothing of rollouts; an environment and a server use it."""
