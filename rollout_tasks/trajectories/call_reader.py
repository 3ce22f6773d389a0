"""Reads the record of an attempt's model calls back: whole, or up to the last complete line. Writes nothing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rollout_tasks.models.base import Message
from rollout_tasks.models.served_call import CallFactsError, ServedCall
from rollout_tasks.trajectories.calls import CALLS_NAME, PICTURES_NAME
from rollout_tasks.trajectories.data_urls import KINDS, data_url
from rollout_tasks.trajectories.writer import FILE_KEY
from rollout_tasks.validation_messages import clause

_CALL = TypeAdapter(ServedCall)
_PICTURE = re.compile(rf"([0-9a-f]{{64}})\.({'|'.join(KINDS)})")


class CallRecordError(Exception):
    """A record cannot be read, or contradicts itself: one sentence naming file and line."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One session's calls as recorded."""

    header: Mapping[str, Any]
    calls: tuple[ServedCall, ...]
    """In the order in which they ended."""
    pictures: Mapping[int, tuple[str, ...]]
    """The SHA-256 of each picture in a call's prompt, in order, by the call's number. Pictures that are no file are left out."""
    torn: str | None
    """A sentence if the last line was incomplete and dropped."""


def read_calls(directory: Path, *, images: bool = True) -> CallRecord:
    """Reads one attempt's record.

    Args:
        directory: The attempt's folder.
        images: Whether to put pictures back into the messages; else these have ``{"$file": name}`` in place of the URLs.

    Raises:
        CallRecordError: There is no record, a line other than an incomplete last one is invalid, what it says of a call
            cannot be true, or a picture is missing or is not the one that its name says.
    """
    path = directory / CALLS_NAME
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise CallRecordError(f"{path}: {error.strerror}") from error
    last = lines.pop()
    torn = f"{path}: line {len(lines) + 1} is cut off and was dropped" if last else None
    builder = _Builder(directory / PICTURES_NAME, images)
    for number, line in enumerate(lines, start=1):
        try:
            builder.add(json.loads(line))
        except CallFactsError as error:
            raise CallRecordError(f"{path}: line {number}: {error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise CallRecordError(f"{path}: line {number}: {where}: {clause(first)}") from error
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            raise CallRecordError(f"{path}: line {number}: not a line of a record of calls: {reason}") from error
        except OSError as error:
            raise CallRecordError(f"{path}: line {number}: {error.filename}: {error.strerror}") from error
    return builder.build(torn)


class _Builder:
    """Collects lines into a `CallRecord`."""

    def __init__(self, folder: Path, with_pictures: bool) -> None:
        self._folder = folder
        self._with_pictures = with_pictures
        self._header: Mapping[str, Any] = {}
        self._stored: list[Any] = []
        self._calls: dict[int, ServedCall] = {}
        self._pictures: dict[int, tuple[str, ...]] = {}

    def add(self, line: dict[str, Any]) -> None:
        match line["kind"]:
            case "start":
                self._header = line["header"]
            case "message":
                self._store(line["number"], self._restored(line["message"]))
            case "tools":
                self._store(line["number"], line["tools"])
            case "call":
                self._add_call(line)
            case unknown:
                raise ValueError(f"unknown kind {unknown!r}")

    def build(self, torn: str | None) -> CallRecord:
        return CallRecord(self._header, tuple(self._calls.values()), self._pictures, torn)

    def _store(self, number: Any, value: Any) -> None:
        if number != len(self._stored):
            raise ValueError(f"number {number!r} where {len(self._stored)} is next")
        self._stored.append(value)

    def _add_call(self, line: dict[str, Any]) -> None:
        facts = {name: value for name, value in line.items() if name not in {"kind", "pictures"}}
        facts["messages"] = [self._named(number) for number in line["messages"]]
        facts["tools"] = [] if line["tools"] is None else self._named(line["tools"])
        facts["reply"] = None if line["reply"] is None else self._named(line["reply"])
        call = _CALL.validate_python(facts)
        call.check()
        if call.number in self._calls:
            raise CallFactsError(f"call {call.number} is there twice")
        self._calls[call.number] = call
        self._pictures[call.number] = tuple(map(str, line["pictures"]))

    def _named(self, number: Any) -> Any:
        if type(number) is not int or not 0 <= number < len(self._stored):
            raise ValueError(f"no line before has number {number!r}")
        return self._stored[number]

    def _restored(self, message: Message) -> Message:
        if self._with_pictures and isinstance(message.get("content"), list):
            return {**message, "content": [self._with_picture(part) for part in message["content"]]}
        return message

    def _with_picture(self, part: Any) -> Any:
        link = part.get("image_url") if isinstance(part, dict) else None
        if not isinstance(link, dict) or not isinstance(link.get("url"), dict):
            return part
        name = link["url"][FILE_KEY]
        found = _PICTURE.fullmatch(name)
        if found is None:
            raise ValueError(f"{name!r} is not a picture's name")
        picture = (self._folder / name).read_bytes()
        if hashlib.sha256(picture).hexdigest() != found[1]:
            raise ValueError(f"the file {name} has another content than its name says")
        return {**part, "image_url": {**link, "url": data_url(picture, found[2])}}
