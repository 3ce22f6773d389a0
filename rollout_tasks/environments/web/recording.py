"""A record of what the web answered, in a folder: written once, then replayed byte for byte without asking anybody.

<folder>/
    entries/<kind>/<first two digits>/<sha256 of the question>.json    what was asked, and the SHA-256 of the answer
    objects/<first two digits>/<sha256 of the answer>                  answers as JSON, never changed

The first answer to a question stays, whoever records it. The folder may come from elsewhere: files are limited in size, links are
not followed, and an answer that is not the one recorded is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from benchmark.whole_file import write_whole
from rollout_tasks.environments.web.refusal import Refused

Kind = Literal["page", "search", "summary"]
_LARGEST_ENTRY, _LARGEST_OBJECT = 64 << 10, 16 << 20
"""Bytes."""
_DIGEST = re.compile("[0-9a-f]{64}")


class RecordDamagedError(RuntimeError):
    """What the folder holds is not what was recorded; the message names the file."""


class Recording:
    """Asks, records or replays, as the run says."""

    def __init__(self, mode: Literal["off", "record", "replay"], folder: Path | None) -> None:
        """Touches nothing yet.

        Args:
            mode: What is done.
            folder: Where; None only if `mode` is ``off``.
        """
        self._mode = mode
        self._folder = folder

    def answer(
        self, kind: Kind, question: Mapping[str, Any], ask: Callable[[], Any], *, asks_in_replay: bool = False
    ) -> Any:
        """Returns the answer to a question: the recorded one, else a new one, which is recorded if that is wanted.

        Args:
            kind: What is asked for.
            question: JSON values that tell it from all other questions of its kind.
            ask: Returns a new answer, a JSON value. What it raises is not recorded.
            asks_in_replay: Whether to ask in a replay, too, if there is no record: nothing of the web is asked for.

        Returns:
            The answer. A recorded one is untrusted.

        Raises:
            Refused: It was not recorded, and the run only replays.
            RecordDamagedError: The record cannot be relied on.
            OSError: The folder cannot be read or written to.
        """
        if self._folder is None or self._mode == "off":
            return ask()
        entry = self._entry(kind, question)
        if (found := self._recorded(entry, kind, question)) is not None:
            return found["answer"]
        if self._mode == "record":
            return self._record(entry, kind, question, ask())
        if asks_in_replay:
            return ask()
        raise Refused("it was not recorded, and this run only replays what was (--web-cache replay)")

    def _entry(self, kind: Kind, question: Mapping[str, Any]) -> Path:
        digest = hashlib.sha256(_json([kind, question])).hexdigest()
        return self._place("entries", kind, digest[:2], f"{digest}.json")

    def _object(self, digest: str) -> Path:
        return self._place("objects", digest[:2], digest)

    def _place(self, *parts: str) -> Path:
        assert self._folder is not None  # noqa: S101 (without one, nothing is recorded)
        return self._folder.joinpath(*parts)

    def _recorded(self, entry: Path, kind: Kind, question: Mapping[str, Any]) -> dict[str, Any] | None:
        """Returns the recorded answer in an object; None if there is none."""
        content = _read(entry, _LARGEST_ENTRY)
        if content is None:
            return None
        match _parsed(content, entry):
            case {"kind": named, "question": asked, "sha256": str(digest)} if _DIGEST.fullmatch(digest):
                if (named, asked) != (kind, dict(question)):
                    raise RecordDamagedError(f"{entry}: it is the entry of another question")
            case _:
                raise RecordDamagedError(f"{entry}: it is not an entry of a record")
        place = self._object(digest)
        answer = _read(place, _LARGEST_OBJECT)
        if answer is None:
            raise RecordDamagedError(f"{place}: it is missing, although it was recorded")
        if hashlib.sha256(answer).hexdigest() != digest:
            raise RecordDamagedError(f"{place}: its content is not what was recorded (SHA-256)")
        return {"answer": _parsed(answer, place)}

    def _record(self, entry: Path, kind: Kind, question: Mapping[str, Any], answer: Any) -> Any:
        """Records an answer; returns the one that is recorded, which may be another's that came first."""
        content = _json(answer)
        digest = hashlib.sha256(content).hexdigest()
        place = self._object(digest)
        for file in (place, entry):
            file.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            write_whole(place, content.decode())
        mine = entry.with_name(f".{entry.stem}.{secrets.token_hex(8)}")
        write_whole(mine, _json({"kind": kind, "question": question, "sha256": digest}).decode())
        try:
            os.link(mine, entry)
        except FileExistsError:
            if (first := self._recorded(entry, kind, question)) is not None:
                return first["answer"]
            raise
        finally:
            mine.unlink()
        return answer


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _parsed(content: bytes, path: Path) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RecordDamagedError(f"{path}: it is not JSON") from error


def _read(path: Path, largest: int) -> bytes | None:
    """Returns a file's content; None if there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise RecordDamagedError(f"{path}: it is larger than a record's file may be")
    return content
