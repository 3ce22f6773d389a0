"""The files of a corpus, and the hash of what they hold. Their documents are read in `documents`.

To hash a large corpus takes long, so the hash is kept in the cache, under the names, sizes and times of the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmark.whole_file import write_whole
from rollout_tasks.retrieval.cache import cache_folder
from rollout_tasks.retrieval.documents import SUFFIXES, Document, read_documents
from rollout_tasks.retrieval.errors import RetrievalError
from rollout_tasks.retrieval.progress import Progress, Say

_PIECE = 1 << 20
_SETTLED_SECONDS = 2.0
"""A file that was changed less than this ago may change again without getting another time."""


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """One file, and what changes when the file does."""

    path: Path
    name: str
    """Its path within the corpus; of a corpus of one file, the file's name."""
    size: int
    state: tuple[int, int, int]
    """Its inode, and when its content and the file itself last changed, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A file, or a folder with files, as it was when it was looked at."""

    path: Path
    files: tuple[CorpusFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def sha256(self, say: Say) -> str:
        """Returns the hash of the files' names and contents.

        Raises:
            RetrievalError: A file cannot be read, or changed meanwhile.
        """
        known = cache_folder() / "corpora" / f"{self._state_key()}.json"
        if (digest := _kept(known)) is not None:
            return digest
        digest = self._hashed(Progress(say, f"reading {self.path}", self.size))
        newest = max(max(file.state[1:]) for file in self.files)
        if time.time_ns() - newest > _SETTLED_SECONDS * 1e9:
            try:
                known.parent.mkdir(parents=True, exist_ok=True)
                write_whole(known, json.dumps({"corpus": str(self.path), "sha256": digest}))
            except OSError as error:
                raise RetrievalError(f"{error.filename}: cannot be written: {error.strerror}") from error
        return digest

    def documents(self, say: Say) -> Iterator[Document]:
        """Yields all documents.

        Raises:
            RetrievalError: One cannot be read, two have the same id, there is none, or a file changed meanwhile.
        """
        progress = Progress(say, f"indexing {self.path}", self.size)
        seen: set[str] = set()
        for file in self.files:
            read = 0
            for document in read_documents(file.path, file.name):
                if document.id in seen:
                    raise RetrievalError(self._twice(document))
                seen.add(document.id)
                yield document
                read += len(document.text)
                progress.add(len(document.text))
            progress.add(file.size - read)
        if not seen:
            raise RetrievalError(f"{self.path}: has no document")
        self.check_unchanged()

    def check_unchanged(self) -> None:
        """Raises a `RetrievalError` unless the files are as they were."""
        if find_corpus(self.path) != self:
            raise RetrievalError(f"{self.path}: was changed while it was read; try again when it is complete")

    def _twice(self, second: Document) -> str:
        """Returns the sentence about a document whose id an earlier one has, which is looked for only now."""
        for file in self.files:
            for first in read_documents(file.path, file.name):
                if first.id == second.id:
                    return f"{second.where}: the id {second.id!r} is that of {first.where}, too"
        return f"{second.where}: the id {second.id!r} is there twice"

    def _state_key(self) -> str:
        states = [(file.name, file.size, *file.state) for file in self.files]
        return hashlib.sha256(json.dumps([str(self.path), states]).encode()).hexdigest()

    def _hashed(self, progress: Progress) -> str:
        whole = hashlib.sha256()
        for file in self.files:
            content = hashlib.sha256()
            try:
                with file.path.open("rb") as pieces:
                    while piece := pieces.read(_PIECE):
                        content.update(piece)
                        progress.add(len(piece))
            except OSError as error:
                raise RetrievalError(f"{file.path}: cannot be read: {error.strerror}") from error
            whole.update(json.dumps([file.name, content.hexdigest()]).encode())
        self.check_unchanged()
        return whole.hexdigest()


def find_corpus(path: Path) -> Corpus:
    """Returns a corpus's files, in an order that does not depend on the file system. Hidden ones are left out.

    Raises:
        RetrievalError: There is no such file or folder, or it has no file of a kind that can be read.
    """
    try:
        names = sorted(_names_in(path)) if path.is_dir() else [path.name]
        folder = path if path.is_dir() else path.parent
        files = tuple(_file(folder, name) for name in names)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        where = getattr(error, "filename", None) or path
        raise RetrievalError(f"{where}: {reason[:1].lower()}{reason[1:]}") from error
    if not files:
        raise RetrievalError(f"{path}: has no file of a known kind: {_kinds()}")
    if path.suffix.lower() not in SUFFIXES and not path.is_dir():
        raise RetrievalError(f"{path}: is of an unknown kind; known are {_kinds()}")
    return Corpus(path, files)


def _file(folder: Path, name: str) -> CorpusFile:
    path = folder / name
    if not path.is_file() and path.exists():
        raise ValueError(f"{name} is neither a file nor a folder")
    found = path.stat()
    return CorpusFile(path, name, found.st_size, (found.st_ino, found.st_mtime_ns, found.st_ctime_ns))


def _names_in(folder: Path) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES:
                yield (Path(parent) / name).relative_to(folder).as_posix()


def _kinds() -> str:
    return ", ".join(sorted(SUFFIXES))


def _kept(known: Path) -> str | None:
    try:
        digest = json.loads(known.read_text(encoding="utf-8"))["sha256"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return digest if isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest) else None
