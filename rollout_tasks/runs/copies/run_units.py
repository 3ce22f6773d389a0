"""What of a run's folder is complete now, and so can be copied: its description, its reports, and each rollout's ended attempts."""

from __future__ import annotations

from collections.abc import Iterator

from rollout_tasks.runs.copies.local_folder import LocalFolder
from rollout_tasks.runs.copies.names import ATTEMPT, DESCRIBING, ENDED, REPORT, RESULT, SET_ASIDE

_WITHOUT_REPORT = frozenset({"events.jsonl", "judged.jsonl", ENDED})


def description_files(run: LocalFolder) -> list[str]:
    """Returns the files that say what the run is."""
    return [name for name in DESCRIBING if run.is_file(name)]


def report_files(run: LocalFolder) -> list[str]:
    """Returns the files that say how the run went; a report only where both of its files are there.

    Raises:
        OSError: The run's folder cannot be read.
    """
    names = {entry.name for entry in run.entries() if entry.is_file and REPORT.fullmatch(entry.name)}
    return sorted(name for name in names if name in _WITHOUT_REPORT or _other_half(name) in names)


def rollout_files(run: LocalFolder, folder: str) -> list[str]:
    """Returns the files of a rollout that will not change: its verdict, and those of attempts that have ended.

    An attempt has ended when it has a result, which whoever made the attempt writes last. What a resume has moved aside is among
    them.

    Args:
        run: The run's folder.
        folder: The rollout's, relative to it.

    Raises:
        OSError: A folder cannot be read.
    """
    names = [f"{folder}/{RESULT}"] if run.is_file(f"{folder}/{RESULT}") else []  # first: its attempt has ended before
    for entry in run.entries(folder):
        if not entry.is_folder:
            continue
        if ATTEMPT.fullmatch(entry.name):
            names += _attempt_files(run, f"{folder}/{entry.name}")
        elif SET_ASIDE.fullmatch(entry.name):
            names += rollout_files(run, f"{folder}/{entry.name}")
    return names


def left_out(run: LocalFolder, folder: str) -> int:
    """Returns how many links, special files and files with impossible names a rollout's folder has, which no copy has.

    Raises:
        OSError: A folder cannot be read.
    """
    return run.oddities_below(folder)


def state_of(run: LocalFolder, folder: str) -> tuple[tuple[str, int], ...]:
    """Returns what changes when a rollout gets another verdict, an attempt ends, or a resume moves something.

    Raises:
        OSError: A folder cannot be read.
    """
    return tuple(_state_of(run, folder))


def _state_of(run: LocalFolder, folder: str) -> Iterator[tuple[str, int]]:
    for entry in run.entries(folder):
        yield f"{folder}/{entry.name}", entry.changed_ns
        if entry.is_folder and SET_ASIDE.fullmatch(entry.name):
            yield from _state_of(run, f"{folder}/{entry.name}")


def _attempt_files(run: LocalFolder, attempt: str) -> list[str]:
    return list(run.names_below(attempt)) if run.is_file(f"{attempt}/{RESULT}") else []


def _other_half(name: str) -> str:
    """Returns the name of a report's other file."""
    if name.startswith("evaluation"):
        return name.replace("evaluation", "report", 1).removesuffix(".json") + ".md"
    return name.replace("report", "evaluation", 1).removesuffix(".md") + ".json"
