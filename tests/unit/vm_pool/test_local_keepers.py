"""What the keeper of a local desktop says when it is launched, and what a host makes of it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from vm_pool.providers.local.keeper_process import launched

RUNTIME = 'time="2026-01-01T00:00:00Z" level=error msg="no cgroup"'


@contextmanager
def saying(script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that says something as keepers do, and ends with its input at the latest."""
    with subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdin is not None
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo started; read -r _", "started"),
        ("echo 'sh: warning: cannot set the locale' >&2; echo started; read -r _", "started"),
        ("echo 'a warning'; printf sta; sleep 0.05; echo rted; read -r _", "started"),
        ("echo 'a warning'; echo 'mount: no such device'", "a warning mount: no such device"),
        (f"echo '{RUNTIME}'", "no cgroup"),
        ("exit 1", "its keeper ended without a word"),
    ],
)
def test_a_keeper_has_started_once_it_says_so_whatever_is_said_before(script: str, said: str) -> None:
    with saying(script) as keeper:
        assert launched(keeper, 20.0) == said


@pytest.mark.parametrize(("script", "said"), [("read -r _", ""), ("echo 'a warning'; read -r _", "a warning")])
def test_a_keeper_that_goes_on_without_a_start_is_not_waited_for_longer(script: str, said: str) -> None:
    with saying(script) as keeper:
        began = time.monotonic()
        assert launched(keeper, 0.3) == said
        assert time.monotonic() - began < 10
