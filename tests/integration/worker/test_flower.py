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


COMMAND = [sys.executable, "-m", "celery", "-A", "rollout_tasks", "flower", "--address=127.0.0.1", "--read_only"]


def environment(redis_url: str, **flower: str) -> dict[str, str]:
    """This process's, with the server's address, and of Flower's variables those alone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLOWER_")}
    return kept | {"REDIS_URL": redis_url} | flower


@pytest.fixture(scope="module")
def flower(_shared_valkey: object) -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        [*COMMAND, f"--port={port}"],
        env=environment(str(getattr(_shared_valkey, "url", "")), FLOWER_BASIC_AUTH=":".join(LOGIN)),
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
        yield url
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.parametrize("page", ["/", "/workers", "/tasks", "/api/workers", "/metrics"])
def test_pages_are_shown_to_who_logs_in(flower: str, page: str) -> None:
    alone = httpx.get(f"{flower}{page}", timeout=20)
    wrong = httpx.get(f"{flower}{page}", auth=("flower", "guess"), timeout=20)
    known = httpx.get(f"{flower}{page}", auth=LOGIN, timeout=20)

    assert (alone.status_code, wrong.status_code, known.status_code) == (401, 401, 200)
    assert "flower_" not in alone.text + wrong.text
    if page == "/metrics":
        assert "flower_events_total" in known.text


def test_that_it_is_there_may_be_asked_without(flower: str) -> None:
    assert httpx.get(f"{flower}/healthcheck", timeout=20).text == "OK"


@pytest.mark.parametrize("login", [{}, {"FLOWER_BASIC_AUTH": ""}, {"FLOWER_BASIC_AUTH": "foo"}])
def test_it_does_not_start_without_a_login(redis_url: str, login: dict[str, str]) -> None:
    done = subprocess.run(
        [*COMMAND, f"--port={free_port()}"],
        env=environment(redis_url, **login),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
    )
    last = done.stderr.splitlines()[-1]

    assert done.returncode == 2
    assert last.startswith("error: ")
    assert "set FLOWER_BASIC_AUTH to USER:PASSWORD" in last
    assert "Traceback" not in done.stderr
