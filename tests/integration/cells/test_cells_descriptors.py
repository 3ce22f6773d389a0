"""Whatever fails when a cell opens or ends, its worker keeps none of its descriptors."""

from __future__ import annotations

import threading

import psutil
import pytest

from rollout_tasks.cells.cell import Cell
from rollout_tasks.cells.template_process import TemplateProcess
from tests.integration.cells.conftest import _nowhere

PORTS = {"control": 5000, "chromium": 9222, "vnc": 8006, "vlc": 8080}


@pytest.mark.parametrize("threads", [0, 1])
def test_a_cell_keeps_no_descriptor_where_its_threads_cannot_be_started(
    template: TemplateProcess, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, left = threading.Thread.start, threads

    def refuse(thread: threading.Thread) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = psutil.Process().num_fds()

    with pytest.raises(RuntimeError, match="can't start new thread"):
        Cell(template, ports=PORTS, dial=_nowhere)

    assert psutil.Process().num_fds() == before
