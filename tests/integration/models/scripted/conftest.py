"""A scripted model in a process of its own, for each module of tests."""

import httpx
import pytest

from rollout_tasks.models.scripted.process import ScriptedModelProcess
from tests.integration.models.scripted.clients import EXAMPLES


@pytest.fixture(scope="module")
def examples():
    """A server playing the example items."""
    with ScriptedModelProcess(EXAMPLES) as server:
        yield server


@pytest.fixture
def set_faults(examples):
    """Puts rules in force on the server of `examples` until the test ends."""

    def set_faults(*rules):
        reply = httpx.post(examples.url.removesuffix("/v1") + "/scripted/faults", json=list(rules))
        assert reply.status_code == 200, reply.text

    yield set_faults
    set_faults()
