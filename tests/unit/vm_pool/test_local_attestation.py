"""What of a local desktop's files counts as altered: its image's, and however root there fills its disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.recursion import fewer_calls
from vm_pool.providers.local.attestation import Attestor
from vm_pool.providers.local.handles import DesktopHandles

PYTHON = "python3.11"
PACKAGES = Path("usr/lib/python3/dist-packages")


@dataclass
class Disk:
    """An image of two layers, and what a guest has written over it."""

    written: Path
    layers: tuple[Path, Path]

    def altered(self) -> list[str]:
        upper = os.open(self.written, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return list(Attestor(DesktopHandles(-1, upper, -1, 1), self.layers)._altered_files(PYTHON, []))
        finally:
            os.close(upper)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    disk = Disk(tmp_path / "written", (tmp_path / "upper", tmp_path / "lower"))
    for layer, packages in zip(disk.layers, (["flask"], ["flask", "Xlib/ext"]), strict=True):
        for package in packages:
            (layer / PACKAGES / package).mkdir(parents=True)
            (layer / PACKAGES / package / "code.py").touch()
    disk.written.mkdir()
    return disk


def test_what_is_added_beside_the_images_packages_is_no_alteration(disk: Disk) -> None:
    assert disk.altered() == []
    for folder in ("flask", "Xlib/ext/__pycache__", "own"):
        (disk.written / PACKAGES / folder).mkdir(parents=True)
        (disk.written / PACKAGES / folder / "added.py").touch()
    assert disk.altered() == []


@pytest.mark.parametrize("path", ["flask/code.py", "Xlib/ext/code.py", "Xlib"])
def test_a_file_of_any_layer_that_is_written_over_is_named(disk: Disk, path: str) -> None:
    target = disk.written / PACKAGES / path
    target.parent.mkdir(parents=True)
    target.touch()
    assert disk.altered() == [f"written over: /{PACKAGES / path}"]


def test_a_file_on_the_way_to_the_packages_replaces_them_all(disk: Disk) -> None:
    (disk.written / PACKAGES.parent.parent).mkdir(parents=True)
    (disk.written / PACKAGES.parent).touch()
    assert disk.altered() == [f"written over: /{PACKAGES}"]


def test_so_does_a_link_which_is_not_followed_into_the_host(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "of the host" / PACKAGES.name).mkdir(parents=True)
    (disk.written / PACKAGES.parent.parent).mkdir(parents=True)
    (disk.written / PACKAGES.parent).symlink_to(tmp_path / "of the host")
    assert disk.altered() == [f"written over: /{PACKAGES}"]


def test_the_guests_own_folders_are_not_gone_through_however_deep_they_are(disk: Disk) -> None:
    (disk.written / PACKAGES / "/".join(["own"] * 200)).mkdir(parents=True)
    (disk.written / PACKAGES / "Xlib").touch()
    with fewer_calls(150):
        assert disk.altered() == [f"written over: /{PACKAGES}/Xlib"]
