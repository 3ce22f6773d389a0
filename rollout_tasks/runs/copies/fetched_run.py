"""Fetches a copied run into a folder: only complete units, each file checked. What is in the folder already is never replaced.

The URL may be anybody's. Names are checked, sizes and hashes too, and no link in the folder is followed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from desktop_image.locks import hold_folder
from rollout_tasks.errors import UserError
from rollout_tasks.runs.copies import names
from rollout_tasks.runs.copies.local_folder import Changed, LocalFolder
from rollout_tasks.runs.copies.manifest import FileFacts
from rollout_tasks.runs.copies.remote_copy import RemoteCopy
from rollout_tasks.runs.copies.remote_folder import RemoteFolder

_MARK = ".fetched"
"""An empty file in a folder that is made by a fetch: nobody rolls out there, so that another fetch may add to it."""
_ROLLED_OUT = ".lock"
"""The file that whoever rolls out in a folder makes there."""
_CHUNK_BYTES = 1 << 20
_KEPT_FREE_BYTES = 64 << 20
"""Of the disk, that stay free."""


@dataclass(slots=True)
class Fetched:
    """What a command fetched."""

    folder: str
    url: str
    over: bool
    """Whether the run was over when it was copied."""
    rollouts: int
    """Those that are in the folder now."""
    files_fetched: int = 0
    files_kept: int = 0
    """That were in the folder already."""
    bytes_fetched: int = 0
    incomplete: int = 0
    """Rollouts, or other parts of the run, that were just being copied or whose copy was broken off."""


def fetch_run(remote: RemoteFolder, path: Path) -> Fetched:
    """Fetches a run.

    Args:
        remote: Where its copy is.
        path: The folder to be made, or that an earlier fetch has made.

    Raises:
        UserError: There is no complete copy of a run, a file is not what its manifest says, or the folder has something else.
        RemoteError: The URL refuses, or cannot be reached for too long.
        OSError: The folder cannot be written.
    """
    remote.say(f"looks at what is at {remote.url}")
    copy = RemoteCopy(remote)
    units = {unit: manifest.known for unit, manifest in copy.manifests.items() if manifest.complete}
    if set(units.get(names.DESCRIPTION, ())) != set(names.DESCRIBING):
        wrong = next((f": {name} {why}" for name, why in copy.broken.items()), "")
        raise UserError(f"URL: {remote.url} has no complete copy of a run{wrong}")
    rollouts = sorted(unit for unit in units if unit.startswith(names.ROLLOUTS))
    incomplete = len(copy.manifests) - len(units) + len(copy.broken)
    if incomplete:  # reports tell of every rollout: without them, nobody takes the run for one that is over
        units.pop(names.REPORTS, None)
    ordered = [*rollouts, *(unit for unit in (names.REPORTS,) if unit in units), names.DESCRIPTION]
    path = _prepared(path)
    held = hold_folder(path)
    if held is None:
        raise UserError(f"another command is fetching to {path}; try again once it has ended")
    try:
        with LocalFolder(path) as local:
            local.write(_MARK, [])
            _check_space(path, local, (file for unit in ordered for file in units[unit].items()))
            fetching = _Fetching(remote, local)
            for number, unit in enumerate(ordered):
                remote.say(f"fetches {remote.url}: {number} of {len(ordered)} parts")
                fetching.fetch(units[unit])
    finally:
        os.close(held)
    over = names.ENDED in units.get(names.REPORTS, ())
    fetched = Fetched(str(path), remote.url, over, len(rollouts), incomplete=incomplete)
    fetched.files_fetched, fetched.files_kept, fetched.bytes_fetched = fetching.counts()
    return fetched


class _Fetching:
    """One command's work."""

    def __init__(self, remote: RemoteFolder, local: LocalFolder) -> None:
        self._remote = remote
        self._local = local
        self._kept: list[str] = []
        self._fetched: list[int] = []

    def fetch(self, files: dict[str, FileFacts]) -> None:
        """Fetches the files of a unit, results last: an attempt with a result is whole."""
        results = {name: facts for name, facts in files.items() if name.endswith(f"/{names.RESULT}")}
        for some in (files.keys() - results.keys(), results.keys()):
            self._remote.each(lambda name: self._file(name, files[name]), self._missing(sorted(some), files))

    def counts(self) -> tuple[int, int, int]:
        """Returns how many files were fetched, how many were there, and the bytes of the first."""
        return len(self._fetched), len(self._kept), sum(self._fetched)

    def _missing(self, some: Iterable[str], files: dict[str, FileFacts]) -> list[str]:
        missing = []
        for name in some:
            try:
                here = self._local.hashed(name)
            except Changed:
                missing.append(name)
                continue
            if (here.size, here.sha256) != (files[name].size, files[name].sha256):
                raise UserError(
                    f"{self._local.path / name} is there already, and is not what {self._remote.url} has: fetch to another folder"
                )
            self._kept.append(name)
        return missing

    def _file(self, name: str, facts: FileFacts) -> None:
        self._remote.fetch(name, facts.size, lambda opened: self._take(name, facts, opened))
        self._fetched.append(facts.size)

    def _take(self, name: str, facts: FileFacts, opened: BinaryIO) -> None:
        self._local.write(name, self._checked(name, facts, opened))

    def _checked(self, name: str, facts: FileFacts, opened: BinaryIO) -> Iterator[bytes]:
        digest, size = hashlib.sha256(), 0
        while size <= facts.size and (chunk := opened.read(min(_CHUNK_BYTES, facts.size + 1 - size))):
            size += len(chunk)
            digest.update(chunk)
            yield chunk
        if (size, digest.hexdigest()) != (facts.size, facts.sha256):
            raise UserError(
                f"{self._remote.url}/{name} is not what its manifest says: if the run is being copied there now, try again;"
                " else copy it there again"
            )


def _prepared(path: Path) -> Path:
    """Returns a folder that a run can be fetched to; makes it if there is none.

    Raises:
        UserError: It has something else.
        OSError: It cannot be made.
    """
    if os.path.lexists(path):
        path = path.resolve()
        if not path.is_dir():
            raise UserError(f"{path} is not a folder")
        if os.path.lexists(path / _ROLLED_OUT) or (any(path.iterdir()) and not os.path.lexists(path / _MARK)):
            raise UserError(f"{path} has files that no copy wrote: name another folder, which need not be there")
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def _check_space(path: Path, local: LocalFolder, files: Iterable[tuple[str, FileFacts]]) -> None:
    """Checks that what is missing fits on the disk.

    Raises:
        UserError: It does not.
    """
    missing = sum(facts.size for name, facts in files if not local.is_file(name))
    free = shutil.disk_usage(path).free
    if missing + _KEPT_FREE_BYTES > free:
        raise UserError(f"{path}: the run has {missing:,} bytes more, and the disk only {free:,} free")
