"""A judge's earlier verdicts, in a file that outlives the process, so that no answer is paid for twice.

Each verdict is one line of JSON, appended as soon as it is known. Several processes may append to one file at once, and
each finds what the others added. A line that a crash cut short is ignored.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judge's verdict on one answer."""

    verdict: str
    tries: int
    """Requests it took."""


class JudgedAnswers:
    """The verdicts in one file. Thread-safe; a context manager that closes the file.

    A file that cannot be read or written does not fail the run: this is logged once, and the judge is asked again.
    """

    def __init__(self, path: Path) -> None:
        """Reads nothing yet; the file is created with the first verdict."""
        self._path = path
        self._known: dict[bytes, Judgement] = {}
        self._lock = threading.Lock()
        self._read_to = 0
        self._rest = b""
        self._descriptor = -1
        self._warned = False

    def __enter__(self) -> JudgedAnswers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; the next use opens it again."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)

    def find(self, model: str, messages: list[dict[str, str]]) -> Judgement | None:
        """Returns this model's verdict on these messages, from any process; None when it is not known."""
        key = _key(model, messages)
        with self._lock:
            if key not in self._known:
                self._catch_up()
            return self._known.get(key)

    def keep(self, model: str, messages: list[dict[str, str]], judgement: Judgement) -> None:
        """Stores a verdict, unless another process just has; it is on disk when this returns."""
        key = _key(model, messages)
        record = {"key": key.hex(), "judge": model, "verdict": judgement.verdict, "tries": judgement.tries}
        with self._lock:
            self._catch_up()
            if key in self._known:
                return
            self._known[key] = judgement
            try:
                self._append(json.dumps(record).encode() + b"\n")
            except OSError as error:
                self._warn("written", error)

    def _append(self, line: bytes) -> None:
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line  # a crash cut the last line short
        if os.write(self._descriptor, line) != len(line):
            raise OSError(errno.ENOSPC, "no room for the whole line", str(self._path))
        os.fdatasync(self._descriptor)

    def _catch_up(self) -> None:
        """Reads what was appended since the last read."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_to)
                while part := file.read(_READ_BYTES):
                    self._read_to += len(part)
                    *lines, self._rest = (self._rest + part).split(b"\n")
                    for line in lines:
                        self._learn(line)
        except FileNotFoundError:
            return
        except OSError as error:
            self._warn("read", error)

    def _learn(self, line: bytes) -> None:
        try:
            record: Any = json.loads(line)
            self._known[bytes.fromhex(record["key"])] = Judgement(str(record["verdict"]), int(record["tries"]))
        except (ValueError, TypeError, KeyError):
            return  # cut short, or empty

    def _warn(self, what: str, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "%s cannot be %s: %s; scoring this run again may ask the judge again", self._path, what, error.strerror
            )


def _key(model: str, messages: list[dict[str, str]]) -> bytes:
    request_text = json.dumps([model, messages], sort_keys=True)
    return hashlib.sha256(request_text.encode()).digest()
