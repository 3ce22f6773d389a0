"""Names of files in a copy: which are safe, and to which unit of the copy they belong.

A unit is what a reader gets whole or not at all: the run's description, its reports, or one rollout's folder.
"""

from __future__ import annotations

import re

from rollout_tasks.runs.item_paths import decode_id, encode_id
from rollout_tasks.runs.verdict import split_rollout_id

DESCRIPTION, REPORTS = "description", "reports"
ROLLOUTS, EXPORTS = "rollouts/", "exports/"
"""How the names of the units of rollouts and exports begin."""
ENDED = ".ended"
"""The only hidden file of a copy: it says that the run is over."""
DESCRIBING = ("run.json", "items.jsonl")
REPORT = re.compile(r"(evaluation(-[\w.-]+)?\.json|report(-[\w.-]+)?\.md|events\.jsonl|judged\.jsonl|\.ended)")
ATTEMPT, SET_ASIDE = re.compile(r"attempt-[0-9]{1,9}"), re.compile(r"earlier-[0-9]{1,9}")
RESULT = "result.json"

_LONGEST_PART, _LONGEST = 255, 900
"""Bytes: of a file's name on common file systems, and of an object's, with room for the target's own path."""
_MOST_PARTS = 40


def has_safe_parts(name: str) -> bool:
    """Whether a name stays in its folder, wherever that is: without ``..``, an absolute path or hidden parts."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:  # bytes that are no text
        return False
    parts = name.split("/")
    return (
        len(encoded) <= _LONGEST
        and len(parts) <= _MOST_PARTS
        and all(part and not part.startswith(".") and len(part.encode()) <= _LONGEST_PART for part in parts)
        and name.isprintable()
        and "\\" not in name
    )


def rollout_unit(rollout_id: str) -> str:
    """Returns the unit of a rollout."""
    return ROLLOUTS + rollout_folder(rollout_id)


def rollout_folder(rollout_id: str) -> str:
    """Returns the folder of a rollout, relative to its run's."""
    item_id, index = split_rollout_id(rollout_id)
    return f"{encode_id(item_id)}/{index}"


def is_unit(unit: str) -> bool:
    """Whether there can be a unit of that name."""
    if unit in {DESCRIPTION, REPORTS}:
        return True
    if unit.startswith(EXPORTS):
        return re.fullmatch(r"[a-z0-9-]+", unit.removeprefix(EXPORTS)) is not None
    item, _, index = unit.removeprefix(ROLLOUTS).rpartition("/")
    if not unit.startswith(ROLLOUTS) or not re.fullmatch(r"0|[1-9][0-9]{0,8}", index) or not has_safe_parts(item):
        return False
    try:
        return encode_id(decode_id(item)) == item
    except ValueError:
        return False


def belongs(name: str, unit: str) -> bool:
    """Whether a unit can have a file of that name."""
    if unit == DESCRIPTION:
        return name in DESCRIBING
    if unit == REPORTS:
        return REPORT.fullmatch(name) is not None
    if not has_safe_parts(name):
        return False
    if unit.startswith(EXPORTS):
        return True
    folder = unit.removeprefix(ROLLOUTS) + "/"
    if not name.startswith(folder):
        return False
    parts = name.removeprefix(folder).split("/")
    if len(parts) > 1 and SET_ASIDE.fullmatch(parts[0]):
        parts = parts[1:]
    return parts == [RESULT] or (len(parts) > 1 and ATTEMPT.fullmatch(parts[0]) is not None)
