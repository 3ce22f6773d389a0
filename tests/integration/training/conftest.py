"""The cluster that the service loop rolls out on."""

from tests.cluster import cluster_fixture as cluster

__all__ = ["cluster"]
