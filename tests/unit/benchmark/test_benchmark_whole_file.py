"""A file is there whole or not at all, whatever happens while it is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.whole_file import WholeFile, remove_leftovers, write_whole


def test_what_is_durable_is_the_content_then_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        done.append(("synced", path.read_text() if path.is_file() else path.name))
        fsync(descriptor)

    def replaced(source: Path, target: Path) -> None:
        still_open = [one.readlink() for one in Path("/proc/self/fd").iterdir() if one.exists()]
        assert Path(source) not in still_open, "an error of closing it would come too late"
        done.append(("named", Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    write_whole(tmp_path / "a.json", "whole\n")

    assert done == [("synced", "whole\n"), ("named", "a.json"), ("synced", tmp_path.name)]


def test_what_is_not_published_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with WholeFile(path) as file:
        file.write("new")
        assert len(list(tmp_path.iterdir())) == 2

    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("a.json", "old")]


def test_an_error_names_the_file_and_not_the_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "none" / "a.json"
    with pytest.raises(FileNotFoundError) as caught, WholeFile(path):
        pass

    assert caught.value.filename == str(path)


def test_a_folder_in_its_place_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        write_whole(tmp_path / "a.json", "text")

    assert caught.value.filename == str(tmp_path / "a.json")
    assert [found.name for found in tmp_path.iterdir()] == ["a.json"]


def test_leftovers_of_one_file_are_removed_also_by_two_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".a.json.1-2.tmp", ".a.json.3-4.tmp", ".b.json.1-2.tmp", "a.json"):
        (tmp_path / name).write_text("")
    unlink: Callable[..., None] = Path.unlink

    def after_another(path: Path, **how: bool) -> None:
        os.unlink(path)  # noqa: PTH108
        unlink(path, **how)

    monkeypatch.setattr(Path, "unlink", after_another)
    remove_leftovers(tmp_path / "a.json")

    assert sorted(found.name for found in tmp_path.iterdir()) == [".b.json.1-2.tmp", "a.json"]


def test_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    content = bytes(range(256)) * 2_000
    write_whole(tmp_path / "a.png", content)
    assert (tmp_path / "a.png").read_bytes() == content


def test_half_a_surrogate_pair_is_written_as_its_escape(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.json", "é\ud800\r\n\n")
    assert (tmp_path / "a.json").read_bytes() == b"\xc3\xa9\\ud800\r\n\n"
