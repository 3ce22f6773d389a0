"""Whatever fails when a cell opens or ends, its worker keeps none of its descriptors."""

from __future__ import annotations

import gc
import threading
from contextlib import suppress

import psutil
import pytest

from rollout_tasks.cells.cell import Cell
from rollout_tasks.cells.template_process import TemplateProcess
from tests.integration.cells.conftest import _nowhere
from tests.integration.cells.test_cells import Alarm, alarm_in

PORTS = {"control": 5000, "chromium": 9222, "vnc": 8006, "vlc": 8080}


def descriptors() -> int:
    """How many this process has open, without those that only garbage holds."""
    gc.collect()
    return psutil.Process().num_fds()


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
    before = descriptors()

    with pytest.raises(RuntimeError, match="can't start new thread"):
        Cell(template, ports=PORTS, dial=_nowhere)

    assert descriptors() <= before  # fewer where an earlier test has just ended


def test_a_cell_whose_end_is_broken_off_keeps_no_descriptor(template: TemplateProcess) -> None:
    before = descriptors()
    cell = Cell(template, ports=PORTS, dial=_nowhere)
    processes = [psutil.Process(template.pid), *psutil.Process(template.pid).children(recursive=True)]
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # an earlier test's, which was just ending
            process.suspend()
    try:
        alarm_in(0.2)
        with pytest.raises(Alarm):
            cell.close()
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()

    assert descriptors() <= before  # fewer where an earlier test has just ended
    assert "cell-usage" not in [thread.name for thread in threading.enumerate()]
