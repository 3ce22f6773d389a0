"""A record of what the web answered, in a folder: written once, then replayed byte for byte without asking anybody.

<folder>/
    entries/<kind>/<first two digits>/<sha256 of the question>.json    what was asked, and the SHA-256 of the answer
    objects/<first two digits>/<sha256 of the answer>                  answers as JSON, never changed

The first answer to a question stays, whoever records it. The folder may come from elsewhere: files are limited in size, links are
not followed (`record_files`), and an answer that is not the one recorded is an error.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from rollout_tasks.environments.web.record_files import RecordDamagedError, RecordFiles
from rollout_tasks.environments.web.refusal import Refused

Kind = Literal["page", "search", "summary"]
_LARGEST_ENTRY, _LARGEST_OBJECT = 64 << 10, 16 << 20
"""Bytes."""
_DIGEST = re.compile("[0-9a-f]{64}")
Place = tuple[str, ...]
"""Of a file: names below the folder."""


class Recording:
    """Asks, records or replays, as the run says."""

    def __init__(self, mode: Literal["off", "record", "replay"], folder: Path | None) -> None:
        """Touches nothing yet.

        Args:
            mode: What is done.
            folder: Where; None only if `mode` is ``off``.
        """
        self._mode = mode
        self._files = RecordFiles(folder) if folder is not None else None

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
        if self._files is None or self._mode == "off":
            return ask()
        entry = _entry(kind, question)
        if (found := _recorded(self._files, entry, kind, question)) is not None:
            return found["answer"]
        if self._mode == "record":
            return _record(self._files, entry, kind, question, ask())
        if asks_in_replay:
            return ask()
        raise Refused("it was not recorded, and this run only replays what was (--web-cache replay)")


def _entry(kind: Kind, question: Mapping[str, Any]) -> Place:
    digest = hashlib.sha256(_json([kind, question])).hexdigest()
    return ("entries", kind, digest[:2], f"{digest}.json")


def _object(digest: str) -> Place:
    return ("objects", digest[:2], digest)


def _recorded(files: RecordFiles, entry: Place, kind: Kind, question: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the recorded answer in an object; None if there is none."""
    content = files.read(entry, _LARGEST_ENTRY)
    if content is None:
        return None
    match _parsed(content, files.path(entry)):
        case {"kind": named, "question": asked, "sha256": str(digest)} if _DIGEST.fullmatch(digest):
            if (named, asked) != (kind, dict(question)):
                raise RecordDamagedError(f"{files.path(entry)}: it is the entry of another question")
        case _:
            raise RecordDamagedError(f"{files.path(entry)}: it is not an entry of a record")
    path = files.path(_object(digest))
    answer = files.read(_object(digest), _LARGEST_OBJECT)
    if answer is None:
        raise RecordDamagedError(f"{path}: it is missing, although it was recorded")
    if hashlib.sha256(answer).hexdigest() != digest:
        raise RecordDamagedError(f"{path}: its content is not what was recorded (SHA-256)")
    return {"answer": _parsed(answer, path)}


def _record(files: RecordFiles, entry: Place, kind: Kind, question: Mapping[str, Any], answer: Any) -> Any:
    """Records an answer; returns the one that is recorded, which may be another's that came first."""
    content = _json(answer)
    digest = hashlib.sha256(content).hexdigest()
    files.write_first(_object(digest), content)
    if files.write_first(entry, _json({"kind": kind, "question": question, "sha256": digest})):
        return answer
    if (first := _recorded(files, entry, kind, question)) is None:
        raise RecordDamagedError(f"{files.path(entry)}: it was removed while this run recorded")
    return first["answer"]


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _parsed(content: bytes, path: Path) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RecordDamagedError(f"{path}: it is not JSON") from error
