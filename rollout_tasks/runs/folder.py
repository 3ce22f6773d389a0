"""A run's folder: the durable record of a run. Files are written under a temporary name, synced and renamed.

    <output_dir>/<run id>/run.json items.jsonl evaluation.json events.jsonl report.md judged.jsonl
                          <item id>/<index>/result.json
                          <item id>/<index>/attempt-<k>/result.json messages.json trajectory.jsonl step_000.png ...

Only the execution that made an attempt's folder writes there; its `result.json` says how the attempt ended. The rollout's
own `result.json` is its verdict. The first execution that has a verdict writes it, and it never changes: later ones use
the existing one. So there is one verdict however often a rollout was begun, whatever Redis remembers of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from rollout_tasks.errors import UserError
from rollout_tasks.runs.description import RunDescription
from rollout_tasks.runs.durable_files import link_once, write_once
from rollout_tasks.runs.item_paths import encode_id
from rollout_tasks.runs.verdict import Verdict, cancelled_verdict, split_rollout_id
from rollout_tasks.validation_messages import shown

_RESULT = "result.json"


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def report(self) -> Path:
        """The Markdown report."""
        return self.path / "report.md"

    @property
    def evaluation(self) -> Path:
        """The JSON report."""
        return self.path / "evaluation.json"

    def other_reports(self) -> list[Path]:
        """Returns the Markdown reports of `rollouts rescore` beside the run's own, as ``report-METRIC.md``."""
        return sorted(self.path.glob("report-*.md"))

    @property
    def events(self) -> Path:
        """Which worker used which VM when, one JSON object per line."""
        return self.path / "events.jsonl"

    @property
    def judged(self) -> Path:
        """What a judge model said about which answer, one JSON object per line."""
        return self.path / "judged.jsonl"

    @property
    def description(self) -> RunDescription:
        """What the run is: run.json and items.jsonl."""
        return RunDescription(self.path)

    def evaluated_as_asked(self) -> bool:
        """Whether the run has its report, or is to have none: with a verdict on each rollout, it is complete.

        Raises:
            UserError: run.json is missing or broken.
        """
        return self.has_report() or not self.description.config().evaluate_results

    def has_report(self) -> bool:
        """Whether the run's own report is there, in both of its files."""
        return self.evaluation.exists() and self.report.exists()

    def remove_report(self) -> None:
        """Removes the run's own report: a resume goes on, and then it would tell of what was before.

        Raises:
            OSError: The folder cannot be written.
        """
        for path in (self.evaluation, self.report):
            path.unlink(missing_ok=True)

    def rollout(self, rollout_id: str) -> Path:
        """Returns the folder of one rollout."""
        return _rollout_path(self.path, rollout_id)

    def attempt(self, rollout_id: str, attempt: int) -> Path:
        """Returns the folder of one attempt."""
        return self.rollout(rollout_id) / f"attempt-{attempt}"

    def discard(self) -> None:
        """Removes the folder of a run that never began."""
        shutil.rmtree(self.path, ignore_errors=True)

    def begin_attempt(self, rollout_id: str, attempt: int) -> int:
        """Makes the folder of an attempt.

        Args:
            rollout_id: The rollout.
            attempt: The attempt's number according to Redis, which may have forgotten earlier ones.

        Returns:
            The number of the attempt's folder: the next unused one. Numbers that a resumed run has set aside count as used:
            the executions that began them may still write there.

        Raises:
            OSError: It cannot be made.
        """
        number = max(attempt, 1 + max(self._numbers_set_aside(rollout_id), default=0))
        while True:
            path = self.attempt(rollout_id, number)
            try:
                path.mkdir()
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                number += 1
            else:
                return number

    def write_attempt(self, verdict: Verdict) -> None:
        """Writes how an attempt ended into its own folder.

        Raises:
            OSError: It cannot be written.
        """
        path = self.attempt(verdict.rollout_id, verdict.attempt) / _RESULT
        try:
            write_once(path, verdict.as_json() + "\n")
        except FileNotFoundError:  # a resume has moved the folder away meanwhile
            path.parent.mkdir(parents=True, exist_ok=True)
            write_once(path, verdict.as_json() + "\n")

    def settle(self, verdict: Verdict, *, written: bool) -> Verdict:
        """Makes a verdict the rollout's verdict, if it has none yet.

        Args:
            verdict: The verdict.
            written: Whether `write_attempt` has written it; a verdict without an attempt is written here.

        Returns:
            The rollout's verdict: this one, or the earlier one.

        Raises:
            OSError: It cannot be written.
            UserError: The earlier one cannot be read.
        """
        path = self.rollout(verdict.rollout_id) / _RESULT
        if (settled := self.settled(verdict.rollout_id)) is not None:
            return settled
        if written:
            first = link_once(self.attempt(verdict.rollout_id, verdict.attempt) / _RESULT, path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            first = write_once(path, verdict.as_json() + "\n")
        return verdict if first else self._read(path)

    def finished(self, rollout_id: str) -> Verdict | None:
        """Returns the verdict that an earlier execution of a rollout left to be committed, even if its process is gone.

        That is the rollout's verdict, or else that of an attempt which says something about the agent and was not yet made the
        rollout's. Attempts lost to the infrastructure do not count: another attempt may help.

        Raises:
            UserError: It cannot be read.
        """
        settled = self.settled(rollout_id)
        if settled is not None:
            return settled
        for number in reversed(self._numbers(rollout_id)):
            ended = self._attempt_result(rollout_id, number)
            if ended is not None and not ended.worth_repeating:
                return ended
        return None

    def settled(self, rollout_id: str) -> Verdict | None:
        """Returns the rollout's verdict; None as long as it has none, whatever its attempts were.

        Raises:
            UserError: It cannot be read.
        """
        return self._result_in(self.rollout(rollout_id))

    def final_verdict(self, rollout_id: str) -> Verdict:
        """Returns the verdict of a rollout of a run that is over; one without a result was cancelled.

        Raises:
            UserError: It cannot be read.
        """
        return self.settled(rollout_id) or cancelled_verdict(rollout_id, "the run ended before it had a result")

    def verdict(self, rollout_id: str) -> Verdict | None:
        """Returns the rollout's verdict; if none was settled, that of its last attempt, as in runs of older versions.

        Raises:
            UserError: It cannot be read.
        """
        settled = self.settled(rollout_id)
        if settled is not None:
            return settled
        return next(iter(reversed(list(self.attempts(rollout_id)))), None)

    def attempts(self, rollout_id: str) -> Iterator[Verdict]:
        """Yields how each attempt ended, in order; attempts whose process died are left out.

        Raises:
            UserError: A file cannot be read.
        """
        for number in self._numbers(rollout_id):
            ended = self._attempt_result(rollout_id, number)
            if ended is not None:
                yield ended

    def spent(self, rollout_id: str) -> float | None:
        """Returns the dollars for the attempts that have ended, with those set aside; None when they are not known.

        Raises:
            UserError: A file cannot be read.
        """
        parents = [self.rollout(rollout_id), *_set_aside_in(self.rollout(rollout_id))]
        attempts = [parent / f"attempt-{number}" for parent in parents for number in _attempts_in(parent)]
        ended = [verdict for path in attempts if (verdict := self._result_in(path)) is not None]
        costs = [verdict.cost for verdict in ended if verdict.cost is not None]
        return sum(costs) if costs else None

    def was_begun(self, rollout_id: str) -> bool:
        """Whether a rollout has an attempt or a verdict; those that a resume has set aside do not count.

        Raises:
            OSError: Its folder cannot be read.
        """
        return bool(self._numbers(rollout_id)) or (self.rollout(rollout_id) / _RESULT).exists()

    def may_have_begun(self, rollout_id: str) -> bool:
        """Whether a rollout was begun, as far as its folder can be read: one whose folder cannot may have been."""
        try:
            return self.was_begun(rollout_id)
        except OSError:
            return True

    def begun_attempts(self, rollout_id: str) -> list[Path]:
        """Returns the folder of each attempt that was begun, in order."""
        return [self.attempt(rollout_id, number) for number in self._numbers(rollout_id)]

    def remove_temporary_files(self, rollout_id: str) -> None:
        """Removes temporary files of killed executions of a rollout; one that still lives writes its file again."""
        for parent, _, files in os.walk(self.rollout(rollout_id)):  # passes over folders that vanish meanwhile
            for name in files:
                if name.startswith(".") and name.endswith((".tmp", ".part")):
                    Path(parent, name).unlink(missing_ok=True)

    def _numbers(self, rollout_id: str) -> list[int]:
        return _attempts_in(self.rollout(rollout_id))

    def _numbers_set_aside(self, rollout_id: str) -> list[int]:
        return [number for path in _set_aside_in(self.rollout(rollout_id)) for number in _attempts_in(path)]

    def _attempt_result(self, rollout_id: str, number: int) -> Verdict | None:
        return self._result_in(self.attempt(rollout_id, number))

    def _result_in(self, path: Path) -> Verdict | None:
        try:
            return self._read(path / _RESULT)
        except FileNotFoundError:
            return None

    def _read(self, path: Path) -> Verdict:
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(values, dict):
                raise ValueError("must be a JSON object")
            return Verdict.from_dict(values)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(str(path)) from error
        except (OSError, ValueError, TypeError) as error:
            raise UserError(f"{path} cannot be read: {error}") from error

    def settled_verdicts(self, rollout_ids: Iterable[str]) -> Iterator[Verdict]:
        """Yields the verdicts of the rollouts that have one."""
        for rollout_id in rollout_ids:
            verdict = self.settled(rollout_id)
            if verdict is not None:
                yield verdict

    def verdicts(self, rollout_ids: Iterable[str]) -> Iterator[Verdict]:
        """Yields the verdicts of some rollouts; of those without one, how their last attempt ended, if any did."""
        for rollout_id in rollout_ids:
            verdict = self.verdict(rollout_id)
            if verdict is not None:
                yield verdict

    def set_aside(self, rollout_id: str) -> None:
        """Moves a rollout's verdict and earlier attempts aside, because a resumed run tries the rollout again."""
        parent = self.rollout(rollout_id)
        if not parent.is_dir():
            return
        entries = sorted(parent.iterdir())
        # The verdict is moved first: without it the attempts decide, and in the end those are all here or all moved.
        moved = [entry for entry in entries if entry.name == _RESULT]
        moved += [entry for entry in entries if re.fullmatch(r"attempt-\d+", entry.name)]
        if moved:
            found = [re.fullmatch(r"earlier-(\d+)", entry.name) for entry in entries]
            earlier = max((int(match[1]) for match in found if match), default=0)  # some may have been removed
            target = parent / f"earlier-{earlier + 1}"
            target.mkdir()
            for entry in moved:
                entry.rename(target / entry.name)


@lru_cache(maxsize=16)
def _rollout_path(run: Path, rollout_id: str) -> Path:
    """Returns the folder of one rollout; kept, because each rollout asks for it a dozen times."""
    item_id, index = split_rollout_id(rollout_id)
    return run / encode_id(item_id) / str(index)


def _attempts_in(path: Path) -> list[int]:
    return sorted(int(name[8:]) for name in _names_in(path) if re.fullmatch(r"attempt-\d+", name))


def _set_aside_in(path: Path) -> list[Path]:
    """Returns the folders into which resumes have moved a rollout's attempts, in no particular order."""
    return [path / name for name in _names_in(path) if name.startswith("earlier-")]


def _names_in(path: Path) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208 - half the time of Path's
    except (FileNotFoundError, NotADirectoryError):
        return []


def find_run(run: str, output_dir: Path) -> RunFolder:
    """Returns the folder of a run given by id, or by its path.

    Raises:
        UserError: The run does not exist.
    """
    places = (Path(run), output_dir / run)
    for path in places:
        if os.path.isfile(path / "run.json"):  # noqa: PTH113 - unlike Path's, false for names that no file can have
            return RunFolder(path.resolve())
    raise UserError(f"no run {shown(run)}: neither {shown(str(places[0]))} nor {shown(str(places[1]))} has a run.json")
