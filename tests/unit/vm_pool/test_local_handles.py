"""The handles of a local desktop: none stays open where a process may open no more of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.descriptors import descriptors_left, how_many_descriptors
from vm_pool.providers.local.handles import DesktopHandles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a desktop whose first process is this one."""
    (tmp_path / "disk" / "upper").mkdir(parents=True)
    (tmp_path / "init").write_text(f"{os.getpid()}\n")
    return tmp_path


@pytest.mark.parametrize("left", [0, 1, 2])
def test_handles_that_cannot_all_be_opened_leave_none_open(folder: Path, left: int) -> None:
    before = how_many_descriptors()
    with descriptors_left(left), pytest.raises(OSError, match="Too many open files"):
        DesktopHandles.found(Path("/"), folder)
    assert how_many_descriptors() == before


@pytest.mark.parametrize("left", [0, 1, 2])
def test_handles_that_cannot_all_be_copied_leave_none_open(folder: Path, left: int) -> None:
    handles = DesktopHandles.found(Path("/"), folder)
    before = how_many_descriptors()
    with descriptors_left(left), pytest.raises(OSError, match="Too many open files"):
        handles.copy()
    assert how_many_descriptors() == before
    handles.close()


def test_handles_and_their_copies_are_closed_separately(folder: Path) -> None:
    before = how_many_descriptors()
    handles = DesktopHandles.found(Path("/"), folder)
    copied = handles.copy()
    handles.close()
    assert os.path.samestat(os.fstat(copied.written), (folder / "disk" / "upper").stat())
    assert os.path.samestat(os.fstat(copied.network), Path("/proc/self/ns/net").stat())
    copied.close()
    assert how_many_descriptors() == before
