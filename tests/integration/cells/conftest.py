"""A template whose cells run what tests send them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.cells.cell import Cell, Handlers
from rollout_tasks.cells.filesystem import CellFilesystem, why_unusable
from rollout_tasks.cells.isolation import CellLimits
from rollout_tasks.cells.template_process import TemplateProcess
from tests.cells_here import no_cells_here

TESTS = Path(__file__).resolve().parent.parent.parent
NOTHING = Handlers({}, {})


@pytest.fixture(scope="session", params=[True, False], ids=["as root", "in a user namespace"])
def template(request: pytest.FixtureRequest) -> Iterator[TemplateProcess]:
    if request.param and os.geteuid() != 0:
        pytest.skip("only root makes cells that way")
    way = CellFilesystem(as_root=request.param)
    if why := why_unusable(way):
        no_cells_here(why)
    template = TemplateProcess("tests.integration.cells.inside", [TESTS], way)
    yield template
    template.stop()


@dataclass
class Inside:
    """A cell that runs code."""

    cell: Cell
    dialled: list[str] = field(default_factory=list)

    def run(self, code: str, handlers: Handlers = NOTHING, take: Callable[[bytes], object] | None = None) -> Any:
        return self.cell.call("run", handlers, take, code=code)


Opened = Callable[..., Inside]


@pytest.fixture
def opened(template: TemplateProcess) -> Iterator[Opened]:
    """Opens a cell: ``opened(ports={...}, dial=..., hosts=[...], limits=...)``."""
    with ExitStack() as stack:

        def open_one(
            ports: dict[str, int] | None = None,
            dial: Callable[[str], socket.socket] | None = None,
            hosts: Sequence[str] = (),
            limits: CellLimits | None = None,
        ) -> Inside:
            inside = Inside(Cell(template, ports=ports or {}, dial=dial or _nowhere, hosts=hosts, limits=limits))
            stack.callback(inside.cell.close)
            return inside

        yield open_one


@pytest.fixture
def inside(opened: Opened) -> Inside:
    return opened()


def _nowhere(name: str) -> socket.socket:
    raise ConnectionRefusedError(name)
