"""Writes the record of an attempt's model calls as they were served, so that kill -9 loses no recorded call.

`calls.jsonl` is the record. Each line is appended by a single write:

    {"kind": "start", "header": ...}
    {"kind": "message", "number": 0, "message": ...}      each distinct message once
    {"kind": "tools", "number": 0, "tools": [...]}        each distinct list of tools once
    {"kind": "call", "messages": [0, 1], "reply": 2, ...} names them by their numbers

Agents send their whole conversation with every call: written out each time, the record of a long episode would grow with the
square of its length. Pictures are files in `pictures/`, named by their SHA-256 and complete before the line that names them.
`rollout_tasks.trajectories.call_reader` reads it back.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from rollout_tasks.models.served_call import ServedCall
from rollout_tasks.trajectories.data_urls import picture_of
from rollout_tasks.trajectories.writer import FILE_KEY

CALLS_NAME = "calls.jsonl"
PICTURES_NAME = "pictures"


class CallWriter:
    """The record of one session; one writer per folder. Not thread-safe."""

    def __init__(self, directory: Path, header: Mapping[str, Any]) -> None:
        """Begins the record; replaces one that an earlier process left.

        Args:
            directory: The attempt's own folder; made if there is none.
            header: What the session is: ids, model; JSON values, never a secret.

        Raises:
            OSError: The folder cannot be written.
        """
        self._directory = directory
        self._numbers: dict[bytes, int] = {}
        self._files: dict[bytes, str] = {}
        directory.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(directory / CALLS_NAME, flags, 0o644)
        try:
            self._append(_encode({"kind": "start", "header": dict(header)}))
        except OSError:
            os.close(self._descriptor)
            raise

    def record(self, call: ServedCall) -> None:
        """Adds a call.

        Raises:
            CallFactsError: The call cannot be true; nothing is written.
            OSError: It cannot be written, or the record is finished.
        """
        call.check()
        pictures: list[str] = []
        messages = [self._number("message", self._without_pictures(message, pictures)) for message in call.messages]
        reply = None if call.reply is None else self._number("message", call.reply)
        tools = self._number("tools", list(call.tools)) if call.tools else None
        line = {
            "kind": "call",
            "id": call.id,
            "number": call.number,
            "began": call.began,
            "ended": call.ended,
            "dialect": call.dialect,
            "asked_model": call.asked_model,
            "outcome": call.outcome,
            "messages": messages,
            "pictures": [name.partition(".")[0] for name in pictures],
            "tools": tools,
            "sampling": dict(call.sampling),
            "model": call.model,
            "reply": reply,
            "finish_reason": call.finish_reason,
            "usage": _fields(call.usage),
            "sampled": _fields(call.sampled),
            "served": {**_fields(call.served), "spans": [_fields(span) for span in call.served.spans]},
            "failure_class": call.failure_class,
            "sentence": call.sentence,
        }
        self._append(_encode(line))

    def finish(self) -> None:
        """Makes the record durable; harmless when repeated."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def _number(self, kind: str, value: Any) -> int:
        """Returns the number of a message or list of tools, which is written now if it is new."""
        encoded = _encode(value)
        key = hashlib.sha256(kind.encode() + encoded).digest()
        if key not in self._numbers:
            number = len(self._numbers)
            self._append(b'{"kind": "%s", "number": %d, "%s": %s}' % (kind.encode(), number, kind.encode(), encoded))
            self._numbers[key] = number
        return self._numbers[key]

    def _append(self, line: bytes) -> None:
        if self._descriptor < 0:
            raise OSError(errno.EBADF, "the record is finished", str(self._directory / CALLS_NAME))
        before = os.fstat(self._descriptor).st_size
        if os.write(self._descriptor, line + b"\n") != len(line) + 1:
            os.ftruncate(self._descriptor, before)
            raise OSError(errno.ENOSPC, "no room for the whole line", str(self._directory / CALLS_NAME))

    def _without_pictures(self, message: Mapping[str, Any], pictures: list[str]) -> Mapping[str, Any]:
        """Returns a message with pictures' files in the place of their data URLs, and adds the files' names to a list."""
        content = message.get("content")
        if not isinstance(content, list):
            return message
        parts = []
        for part in content:
            link = part.get("image_url") if isinstance(part, dict) else None
            if isinstance(link, dict) and (name := self._file_of(link.get("url"))) is not None:
                pictures.append(name)
                part = {**part, "image_url": {**link, "url": {FILE_KEY: name}}}
            parts.append(part)
        return {**message, "content": parts}

    def _file_of(self, url: Any) -> str | None:
        """Returns the file of a picture; None if the URL is not a picture's, or could not be restored exactly."""
        if not isinstance(url, str):
            return None
        key = hashlib.sha256(url.encode("utf-8", "surrogatepass")).digest()
        if key not in self._files:
            found = picture_of(url)
            if found is None:
                return None
            kind, picture = found
            self._files[key] = self._saved(picture, kind)
        return self._files[key]

    def _saved(self, picture: bytes, kind: str) -> str:
        folder = self._directory / PICTURES_NAME
        folder.mkdir(exist_ok=True)
        name = f"{hashlib.sha256(picture).hexdigest()}.{kind}"
        if not (folder / name).exists():
            temporary = folder / f".{name}.part"
            temporary.write_bytes(picture)
            temporary.replace(folder / name)
        return name


def _fields(facts: Any) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in facts.__dataclass_fields__}


def _encode(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair, which models do write
        return json.dumps(value, allow_nan=False).encode()
