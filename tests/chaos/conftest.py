"""The cluster that the disasters happen to."""

from tests.cluster import cluster_fixture as cluster

__all__ = ["cluster"]
