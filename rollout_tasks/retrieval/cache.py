"""The cache of indexes, shared by all processes of a machine: each part is built once.

    <cache>/computer-use-rollouts/retrieval/
        passages-<hash>/     the passages of a corpus, and their lexical index
        vectors-<hash>/      the embeddings of these passages
        corpora/<hash>.json  the hash of a corpus, by the names, sizes and times of its files
        <part>.lock          held by the process that builds the part

A part is built under a temporary name, synced, and renamed: a folder with a part's name is always whole.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from benchmark.whole_file import sync_file, sync_folder
from desktop_image.cache_folder import user_cache_folder
from desktop_image.locks import locked
from rollout_tasks.retrieval.errors import RetrievalError
from rollout_tasks.retrieval.progress import FIRST_SECONDS, SECONDS, Say

_PARTIAL = ".partial"
_BUILD_SECONDS = 24 * 3600.0
"""How long to wait for another process's build: millions of embeddings take hours."""


def cache_folder() -> Path:
    """Returns the folder of the cache.

    Raises:
        RetrievalError: This user has no home.
    """
    try:
        return user_cache_folder() / "retrieval"
    except OSError as error:
        raise RetrievalError(str(error)) from error


def part(name: str, build: Callable[[Path], None], say: Say) -> Path:
    """Returns a part's folder; builds it first if it is missing, or waits for a process that builds it.

    Args:
        name: The folder's name; contains the hash of what it is made from.
        build: Fills the empty folder that it is given.
        say: Gets a sentence now and then while another process is building.

    Raises:
        RetrievalError: It cannot be stored, or another process has been building it for too long.
    """
    finished = cache_folder() / name
    if finished.is_dir():
        return finished
    try:
        finished.parent.mkdir(parents=True, exist_ok=True)
        _remove_dead_builds()
        _build_alone(finished, build, say)
    except OSError as error:
        raise RetrievalError(f"{error.filename or finished}: cannot be stored: {error.strerror or error}") from error
    return finished


def _build_alone(finished: Path, build: Callable[[Path], None], say: Say) -> None:
    deadline = time.monotonic() + _BUILD_SECONDS
    wait = FIRST_SECONDS
    while time.monotonic() < deadline:
        with locked(_lock_file(finished), seconds=wait) as alone:
            if alone:
                if not finished.is_dir():
                    _build(finished, build)
                return
        say(f"another process is building the index {finished}; waiting for it")
        wait = SECONDS
    raise RetrievalError(f"{finished}: another process has been building it for {_BUILD_SECONDS / 3600:.0f} hours")


def _build(finished: Path, build: Callable[[Path], None]) -> None:
    partial = finished.with_name(finished.name + _PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir()
        build(partial)
        for folder, _, names in os.walk(partial):
            for name in names:
                sync_file(Path(folder) / name)
            sync_folder(Path(folder))
        partial.rename(finished)
        sync_folder(finished.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _remove_dead_builds() -> None:
    """Removes what killed builds left."""
    for partial in cache_folder().glob(f"*{_PARTIAL}"):
        with locked(_lock_file(partial.with_name(partial.name.removesuffix(_PARTIAL)))) as idle:
            if idle:
                shutil.rmtree(partial, ignore_errors=True)


def _lock_file(finished: Path) -> Path:
    return finished.with_name(f"{finished.name}.lock")
