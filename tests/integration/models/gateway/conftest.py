"""A gateway in this process, an upstream endpoint, and sessions on them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models import retries
from rollout_tasks.models.gateway.endpoint_engine import EndpointEngine
from rollout_tasks.models.gateway.engine import Engine
from rollout_tasks.models.gateway.gateway import Gateway
from rollout_tasks.models.gateway.session_summary import SessionLimits
from tests.integration.models.gateway.upstream import KEY, Agent, Recorder, Upstream


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.stopping.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway() as gateway:
        yield gateway


@pytest.fixture
def engine(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> Callable[..., EndpointEngine]:
    monkeypatch.setattr(retries, "LONGEST_BACKOFF", 0.02)

    def engine(**options: Any) -> EndpointEngine:
        return EndpointEngine(
            ModelConfig(name="policy", base_url=upstream.url, **{"timeout": 10.0, **options}), api_key=KEY
        )

    return engine


@pytest.fixture
def agent(gateway: Gateway, engine: Callable[..., EndpointEngine]) -> Iterator[Callable[..., Agent]]:
    """Opens a session; options other than the session's are its engine's."""
    names = iter(range(1000))
    with httpx.Client(timeout=20) as client:

        def open_session(limits: SessionLimits | None = None, own: Engine | None = None, **options: Any) -> Agent:
            recorder = Recorder()
            name = f"run/item%2F{next(names)}/0/1"
            return Agent(gateway.open(name, own or engine(**options), recorder, limits), recorder, client)

        yield open_session
