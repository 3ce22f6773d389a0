"""A broker and workers of a test's own."""

from tests.cluster import cluster_fixture as cluster

__all__ = ["cluster"]
