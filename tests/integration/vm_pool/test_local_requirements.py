"""Finding out whether a machine can run local desktops: what hangs meanwhile is ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.desktops import needs_local_desktops
from tests.virtual_machines import processes_naming, wait_until
from vm_pool.errors import ProviderError
from vm_pool.providers.local import requirements
from vm_pool.providers.local.options import LocalOptions
from vm_pool.providers.local.requirements import check_machine, inspect_host

pytestmark = needs_local_desktops

MARK = f"sleep 8{os.getpid()}"


@pytest.fixture
def hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Puts a program on the path that never ends."""
    monkeypatch.setattr(requirements, "_PROBE_SECONDS", 1.0)

    def put(name: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\nexec {MARK}\n")
        (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    yield put
    for line in processes_naming(MARK):
        with suppress(ProcessLookupError):
            os.kill(int(line.split()[0]), signal.SIGKILL)


def test_a_test_of_namespaces_that_hangs_leaves_no_process(hang: Callable[[str], None]) -> None:
    hang("true")
    with pytest.raises(ProviderError, match="need namespaces, and making some took over"):
        check_machine(LocalOptions())
    wait_until(lambda: processes_naming(MARK) == [], seconds=10)


def test_nor_does_a_test_of_shifted_owners(hang: Callable[[str], None]) -> None:
    hang("sh")
    assert not inspect_host(LocalOptions()).shifts_owners
    wait_until(lambda: processes_naming(MARK) == [], seconds=10)
