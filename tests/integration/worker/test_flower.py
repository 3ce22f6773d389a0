"""Flower as its users start it: nothing of it is shown without the login."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.conftest import REPOSITORY, free_port

LOGIN = ("flower", "a password")


@pytest.fixture(scope="module", params=[True, False], ids=["with a login", "without one"])
def flower(request: pytest.FixtureRequest, _shared_valkey: object) -> Iterator[tuple[str, bool]]:
    port = free_port()
    environment = os.environ | {"REDIS_URL": str(getattr(_shared_valkey, "url", ""))}
    environment.pop("FLOWER_BASIC_AUTH", None)
    if request.param:
        environment["FLOWER_BASIC_AUTH"] = ":".join(LOGIN)
    command = ["-m", "celery", "-A", "rollout_tasks", "flower", "--address=127.0.0.1", f"--port={port}", "--read_only"]
    process = subprocess.Popen(
        [sys.executable, *command],
        env=environment,
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                httpx.get(f"{url}/healthcheck", timeout=5)
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield url, request.param
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.parametrize("page", ["/", "/workers", "/tasks", "/api/workers", "/metrics"])
def test_pages_are_shown_to_who_logs_in(flower: tuple[str, bool], page: str) -> None:
    url, has_login = flower

    alone = httpx.get(f"{url}{page}", timeout=20)
    wrong = httpx.get(f"{url}{page}", auth=("flower", "guess"), timeout=20)
    known = httpx.get(f"{url}{page}", auth=LOGIN, timeout=20)

    if has_login:
        assert (alone.status_code, wrong.status_code, known.status_code) == (401, 401, 200)
        assert "flower_" not in alone.text + wrong.text
    elif page.startswith("/api"):
        assert alone.status_code == 401  # Flower's own rule
    else:
        assert alone.status_code == 200
    if page == "/metrics":
        assert "flower_events_total" in known.text


def test_that_it_is_there_may_be_asked_without(flower: tuple[str, bool]) -> None:
    assert httpx.get(f"{flower[0]}/healthcheck", timeout=20).text == "OK"
