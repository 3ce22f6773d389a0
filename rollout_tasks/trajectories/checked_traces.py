"""Reads an episode's traces from its record, and checks them against its calls.

An attempt whose engine tells its tokens is checked once its record is closed, and every record again when a trainer reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rollout_tasks.trajectories.call_reader import CallRecordError
from rollout_tasks.trajectories.reader import TrajectoryError
from rollout_tasks.trajectories.sampled_calls import read_sampled
from rollout_tasks.trajectories.traces import Trace, TraceError, check_traces, traces_of


def read_traces(directory: Path) -> tuple[list[Trace], Mapping[str, Path]]:
    """Reads an attempt's traces; there are none if no model replied.

    Args:
        directory: The attempt's folder.

    Returns:
        The traces, and the files of their pictures by SHA-256.

    Raises:
        CallRecordError: Its record cannot be read.
        TokensUnknown: Its model did not return its tokens.
        TraceError: Its record contradicts itself.
        TrajectoryError: As `CallRecordError`.
    """
    try:
        episode = read_sampled(directory)
        traces = traces_of(episode.calls)
        check_traces(traces, episode.calls)
    except TraceError as error:
        raise type(error)(f"{directory}: {error}") from error
    return traces, episode.pictures


def problem_of(directory: Path) -> str:
    """Returns why a trainer could not use an attempt's record: one sentence that says where; empty if it can."""
    try:
        read_traces(directory)
    except (CallRecordError, TraceError, TrajectoryError) as error:
        return str(error)
    except (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
        return f"{directory}: its record is broken: {type(error).__name__}: {error}"
    return ""
