"""The folder that an export writes to: one export at a time, and each file or folder in it is there whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmark.whole_file import sync_file, sync_folder, write_whole
from desktop_image.locks import hold_folder
from rollout_tasks.errors import UserError

_TEMPORARY = ".rollouts-export-"
_WRITTEN_NAME = ".rollouts-exports"
"""A file that names the folders in the target that exports wrote: only these are replaced."""


@contextmanager
def replacing(target: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yields an empty folder, and moves what the body made in it to the target when the body has ended without an error.

    What a killed export left in the target is removed.

    Args:
        target: The folder to write to; made if there is none.
        names: What the body makes: files, or folders, whose names end in ``/``. What has such a name in the target is replaced;
            nothing replaces a folder but a folder, and only one that an export wrote.

    Raises:
        OSError: The target cannot be written.
        UserError: Another export writes to it, or a folder of such a name in it has somebody else's files.
    """
    target.mkdir(parents=True, exist_ok=True)
    with _alone_in(target), tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=target) as temporary:
        _check(target, names)
        made = Path(temporary, "new")
        made.mkdir()
        yield made
        for name in names:
            _sync(made / name)
        if folders := [name for name in names if name.endswith("/")]:
            write_whole(target / _WRITTEN_NAME, "".join(f"{name}\n" for name in sorted({*_written(target), *folders})))
        for name in names:
            _move(made / name, target / name, Path(temporary, "old"))
        sync_folder(target)


@contextmanager
def _alone_in(target: Path) -> Iterator[None]:
    held = hold_folder(target.resolve())
    if held is None:
        raise UserError(f"another export is writing to {target}; try again once it has ended")
    try:
        for leftover in target.glob(f"{_TEMPORARY}*"):
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover)
        yield
    finally:
        os.close(held)


def _check(target: Path, names: Sequence[str]) -> None:
    for name in names:
        path = target / name
        if name.endswith("/") and path.exists() and not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        if path.is_dir() and name.endswith("/") and name not in _written(target) and any(path.iterdir()):
            raise UserError(
                f"{path} has files that no export wrote, as {target / _WRITTEN_NAME} does not name it: they would be replaced"
                "; export to another folder"
            )
        if not name.endswith("/") and path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))


def _written(target: Path) -> set[str]:
    try:
        return set((target / _WRITTEN_NAME).read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError):
        return set()


def _sync(made: Path) -> None:
    if made.is_dir():
        for folder, _, files in os.walk(made):
            for name in files:
                sync_file(Path(folder, name))
            sync_folder(Path(folder))
    else:
        sync_file(made)


def _move(made: Path, place: Path, old: Path) -> None:
    """Moves what was made to its place; a folder that is there goes where it is removed with the temporary folder."""
    if made.is_dir() and place.is_symlink():
        place.unlink()
    elif made.is_dir() and place.exists():
        old.mkdir(exist_ok=True)
        place.rename(old / place.name)
    made.replace(place)
