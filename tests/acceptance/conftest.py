"""A broker, workers and a web site of a test's own."""

from tests.cluster import cluster_fixture as cluster
from tests.integration.environments.web.hostile_site import site_fixture as site

__all__ = ["cluster", "site"]
