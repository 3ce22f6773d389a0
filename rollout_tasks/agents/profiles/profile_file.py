"""Reads a profile of one's own from a YAML file. It may be based on a built-in one, and name text files beside it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from rollout_tasks.agents.profiles.profile import LONGEST_TEXT, Profile
from rollout_tasks.errors import UserError
from rollout_tasks.strict_yaml import NoYaml, UnwelcomeYaml, load_yaml
from rollout_tasks.validation_messages import clause, location_of

ENDINGS = (".yaml", ".yml")
_LARGEST_FILE = 1 << 20
_DEEPEST = 20
_OF_REQUEST = "extra"
"""Where fields of the API's own request stand: each is replaced whole."""
_USED_WITH_A_TOOL = {"prompts": ("system", "task"), "history": ("images",)}
"""The fields of these parts that agents with a computer tool use."""


def is_file_name(agent: str) -> bool:
    """Returns whether the name of an agent is that of a profile's file."""
    return agent.endswith(ENDINGS)


def read_profile(file: Path) -> Profile:
    """Returns the profile of a file.

    Raises:
        UserError: The file, or a text file that it names, cannot be read, or a field is wrong; names both.
    """
    file_values = values = _mapping(file)
    from rollout_tasks.agents.profiles.built_in import (
        BUILT_IN,  # here, as it loads all protocols, and few runs have a file
    )

    base = values.pop("base", None)
    if base is not None:
        if not isinstance(base, str) or base not in BUILT_IN:
            raise UserError(f"{file}: base: must be a built-in profile: {', '.join(sorted(BUILT_IN))}, got {base!r}")
        below = BUILT_IN[base].model_dump(mode="json")
        values = _merged(_without_contradictions(below, values), values)
    profile = checked_profile(_with_files(values, file, ()), str(file))
    _check_used(file_values, profile, file)
    if base is not None and (profile.name, profile.version) == (base, BUILT_IN[base].version):
        raise UserError(
            f"{file}: name: {base} with version {profile.version} is the built-in profile: give yours another name or version"
        )
    return profile


def _check_used(file_values: Mapping[str, Any], profile: Profile, file: Path) -> None:
    """Checks that what a file says itself is used. Stored profiles are not checked: an earlier version may have taken them."""
    for part, used in _USED_WITH_A_TOOL.items() if profile.computer_tool is not None else ():
        for name in file_values.get(part, {}):
            if name not in used:
                raise UserError(f"{file}: {part}.{name} is not used with the protocol {profile.protocol}")


def checked_profile(values: object, where: str) -> Profile:
    """Returns a profile of plain values.

    Args:
        values: As `Profile.model_dump` returns them.
        where: What they are from, for the error.

    Raises:
        UserError: A field is wrong.
    """
    try:
        return Profile.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        location = location_of(first, values)
        field = ".".join(map(str, location))
        what = clause(first, _fields_at(location[:-1]))
        raise UserError(f"{where}: {field}: {what}" if field else f"{where}: {what}") from error


def _fields_at(location: tuple[int | str, ...]) -> tuple[str, ...]:
    model: Any = Profile
    for part in location:
        field = model.model_fields.get(str(part))
        model = None if field is None else field.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return ()
    return tuple(model.model_fields)


def _mapping(file: Path) -> dict[str, Any]:
    try:
        loaded = load_yaml(_text(file, _LARGEST_FILE))
    except UnwelcomeYaml as error:
        raise UserError(f"{file}: {error}") from error
    except NoYaml as error:
        raise UserError(f"{file}: is not YAML: {error}") from error
    if not isinstance(loaded, dict):
        raise UserError(f"{file}: is not a mapping of a profile's fields")
    return loaded


def _text(file: Path, most: int) -> str:
    """Returns a file's text; nothing but a regular file is read, and no more than `most` bytes."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would wait for its writer
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UserError(f"{file}: is not a regular file")
            content = opened.read(most + 1)
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{str(file)!r} is not a file name") from error
    if len(content) > most:
        raise UserError(f"{file}: is larger than {most} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: is not UTF-8") from error


def _text_beside(file: Path, name: str, field: str) -> str:
    """Returns the text of a file that a profile's file names."""
    try:
        folder = file.parent.resolve()
        named = (folder / name).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{file}: {field}: {name!r} is not a file name") from error
    if not named.is_relative_to(folder):
        raise UserError(f"{file}: {field}: {name!r} is not in the folder of the profile's file")
    return _text(named, LONGEST_TEXT)


def _without_contradictions(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a built-in profile's fields without those that go with another span, size or format than a file gives."""
    kept = dict(below)
    for part in ("places", "pictures"):
        given = above.get(part)
        if isinstance(given, Mapping):
            dropped = {name for field, value in given.items() for name in _dropped(part, field, value, kept[part])}
            kept[part] = {name: value for name, value in kept[part].items() if name not in dropped}
    return kept


def _dropped(part: str, field: str, value: Any, below: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the fields beside another one that its value replaces."""
    match part, field:
        case "places", "span" if value != below["span"]:
            return "grid", "resize"
        case "pictures", "size" if value is not None:
            return ("resize",)
        case "pictures", "resize" if value is not None:
            return ("size",)
        case "pictures", "format" if value == "unchanged":
            return "resize", "size", "quality"
        case "pictures", "format" if value == "png":
            return ("quality",)
    return ()


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of both; a mapping is merged with the one below, unless it is another text or the request's."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if not isinstance(value, dict) or not isinstance(under, dict) or {"module", "file"} & value.keys():
            merged[key] = value
        elif key == _OF_REQUEST:
            merged[key] = under | value
        else:
            merged[key] = _merged(under, value)
    return merged


def _with_files(value: Any, file: Path, path: tuple[str, ...]) -> Any:
    """Returns values with each ``{file: NAME}`` replaced by the text file's contents."""
    if len(path) > _DEEPEST:
        raise UserError(f"{file}: {'.'.join(path[:3])}: is nested too deeply")
    if isinstance(value, dict):
        if value.keys() == {"file"} and path[:1] == ("prompts",):
            if not isinstance(value["file"], str):
                raise UserError(f"{file}: {'.'.join(path)}: file must be a file's name")
            return _text_beside(file, value["file"], ".".join(path))
        return {key: _with_files(inner, file, (*path, str(key))) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_files(inner, file, (*path, str(number))) for number, inner in enumerate(value)]
    return value
