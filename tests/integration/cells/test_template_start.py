"""A template that is not waited for: it imports while its worker goes on, and whoever wants the first cell waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rollout_tasks.cells import template_process
from rollout_tasks.cells.cell import Cell, CellEnded
from rollout_tasks.cells.template_process import TemplateProcess
from tests.integration.cells.conftest import NOTHING, TESTS, _nowhere
from tests.virtual_machines import wait_until


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[tuple[TemplateProcess, Path]]:
    """A template, and the file that its imports wait for."""
    package = tmp_path / "imports_slowly"
    package.mkdir()
    awaited = package / "awaited"
    (package / "__init__.py").write_text(
        "import time\nfrom pathlib import Path\nfrom tests.integration.cells.inside import serve\n"
        f"while not (Path(__file__).parent / {awaited.name!r}).exists():\n    time.sleep(0.02)\n"
    )
    template = TemplateProcess(package.name, [package, TESTS], wait=False)
    yield template, awaited
    template.stop()


def test_the_first_cell_waits_for_the_imports(slow: tuple[TemplateProcess, Path]) -> None:
    template, awaited = slow
    threading.Timer(1, awaited.touch).start()

    for value in (1, 2):
        cell = Cell(template, ports={}, dial=_nowhere)
        assert awaited.exists()
        assert cell.call("run", NOTHING, code=f"result = {value}") == value
        cell.close()


def test_imports_that_take_too_long_are_said(
    slow: tuple[TemplateProcess, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_process, "START_SECONDS", 0.5)

    with pytest.raises(CellEnded, match=r"^a cell cannot be made: the template of cells was not ready within 0\.5 s$"):
        Cell(slow[0], ports={}, dial=_nowhere)


def test_one_that_dies_at_its_imports_is_started_again(tmp_path: Path) -> None:
    package = tmp_path / "fails_at_first"
    package.mkdir()
    awaited = package / "awaited"
    (package / "__init__.py").write_text(
        "from pathlib import Path\nfrom tests.integration.cells.inside import serve\n"
        f"if not (Path(__file__).parent / {awaited.name!r}).exists():\n    raise SystemExit(3)\n"
    )
    template = TemplateProcess(package.name, [package, TESTS], wait=False)
    try:
        first = template.pid
        wait_until(lambda: not psutil.pid_exists(first), seconds=60)
        awaited.touch()
        cell = Cell(template, ports={}, dial=_nowhere)
        assert cell.call("run", NOTHING, code="result = 1") == 1
        cell.close()
    finally:
        template.stop()
