"""A part of the cache that is of no use is taken away whole, also when who does so is killed meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from desktop_image import define
from desktop_image.cache import discard, guest_cache_folder, part, remove
from desktop_image.cached_images import prune
from desktop_image.images import forget
from desktop_image.release import Release
from desktop_image.root import size_of


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def made(content: str) -> Path:
    def build(target: Path) -> None:
        target.mkdir()
        (target / "disk").write_text(content)

    return part("saved-1", build, lambda _sentence: None, as_root=False)


def interrupt(take_away: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupts what takes a folder away, before it has removed a file."""

    def interrupted(folder: Path, **_options: object) -> None:
        if folder.is_dir():
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            take_away()


def test_a_part_of_no_use_is_made_anew_by_who_needs_it_next() -> None:
    assert (made("old") / "disk").read_text() == "old"

    discard("saved-1")

    assert [path.suffix for path in sorted(guest_cache_folder().iterdir())] == [".lock", ".used"]
    assert (made("new") / "disk").read_text() == "new"


def test_who_is_killed_while_taking_a_part_away_leaves_none_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    made("old")

    def killed(folder: Path) -> None:
        (folder / "disk").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            discard("saved-1")

    assert (made("new") / "disk").read_text() == "new"
    assert not list(guest_cache_folder().glob("*.partial"))


def remove_outdated(_name: str) -> None:
    prune()


@pytest.mark.parametrize("take_away", [remove, discard, remove_outdated])
def test_pruning_removes_what_is_left_where_taking_a_part_away_was_interrupted(
    take_away: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"saved-{'0' * 16}"
    (guest_cache_folder() / name).mkdir(parents=True)
    (guest_cache_folder() / name / "disk").write_text("old")
    interrupt(lambda: take_away(name), monkeypatch)
    left = guest_cache_folder() / f"{name}.partial"
    size = size_of(left)
    said: list[str] = []

    removed, in_use = prune(said.append)

    assert [(part.folder, part.bytes) for part in removed] == [(left, size)]
    assert said == [f"Removing {left.name}"]
    assert not in_use
    assert not left.exists()


def test_pruning_removes_what_is_left_where_an_image_was_being_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    with define("mine", "core", Release()):
        pass
    interrupt(lambda: forget("mine"), monkeypatch)
    images = guest_cache_folder() / "images"
    assert [path.name for path in images.iterdir() if path.is_dir()] == [".mine.new"]

    removed, _ = prune()

    assert [part.folder for part in removed] == [images / ".mine.new"]
    assert [path.name for path in images.iterdir() if path.is_dir()] == []


def test_pruning_leaves_alone_what_is_being_built() -> None:
    def build(target: Path) -> None:
        target.mkdir()
        assert prune() == ([], [])
        assert target.is_dir()

    with define("mine", "core", Release()):
        part(f"saved-{'0' * 16}", build, lambda _sentence: None, as_root=False)
    assert (guest_cache_folder() / "images" / "mine" / "image.json").is_file()


def test_a_part_that_another_makes_anew_is_left_to_it() -> None:
    seen: list[list[str]] = []

    def build(target: Path) -> None:
        target.mkdir()
        discard("saved-1")
        seen.append([path.name for path in target.parent.iterdir()])

    part("saved-1", build, lambda _sentence: None, as_root=False)

    assert "saved-1.partial" in seen[0]
    assert (guest_cache_folder() / "saved-1").is_dir()


def test_a_part_that_is_removed_meanwhile_has_the_size_of_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"x" * 4096)
    whole, look = size_of(tmp_path), Path.lstat
    monkeypatch.setattr(Path, "lstat", lambda path: (path.unlink(), look(path))[1] if path.name == "a" else look(path))

    assert size_of(tmp_path) == whole // 2
