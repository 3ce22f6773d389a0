"""Reads verdicts from a run's folder that may come from elsewhere: only from plain files, and only what is needed to go on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.trajectories.plain_files import check_plain

_RESULT_BYTES = 16 << 20
_BROKEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading a result raises that somebody changed."""


def settled_verdict(folder: RunFolder, rollout_id: str) -> Verdict | None:
    """Returns a rollout's verdict; None if it has none, or none that an attempt made.

    Its attempt is a number, so that it may be a part of a path; its other values are as the file has them.

    Args:
        folder: The run.
        rollout_id: The rollout.

    Raises:
        UserError: It cannot be read.
    """
    path = folder.rollout(rollout_id) / "result.json"
    try:
        check_plain(folder.path, path, _RESULT_BYTES)
        verdict = folder.settled(rollout_id)
        if verdict is None or verdict.attempt == 0:
            return None
        if type(verdict.attempt) is not int or verdict.attempt < 0:
            raise UserError(f"{path} is no result: its attempt is not a number")
        return replace(verdict, rollout_id=rollout_id)  # what the file says may be another one
    except FileNotFoundError:
        return None
    except _BROKEN as error:
        raise UserError(f"{path} is no result: {type(error).__name__}") from error


def number_in(value: Any, most: float) -> float:
    """Returns a value of a verdict as a number from 0 to `most`.

    Args:
        value: What the file has.
        most: The highest that may be.

    Raises:
        ValueError: It is none.
    """
    if type(value) not in {int, float} or not 0.0 <= value <= most or not math.isfinite(value):
        raise ValueError("not a number that a result has")
    return float(value)
