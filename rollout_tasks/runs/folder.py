"""A run's folder: the durable record of a run. Files are written under a temporary name, synced and renamed.

    <output_dir>/<run id>/run.json items.jsonl evaluation.json events.jsonl report.md judged.jsonl
                          <item id>/<index>/result.json
                          <item id>/<index>/attempt-<k>/result.json messages.json trajectory.jsonl step_000.png ...

Only the execution that made an attempt's folder writes there; its `result.json` says how the attempt ended. The rollout's
own `result.json` is its verdict. The first execution that has a verdict writes it, and it never changes: later ones use
the existing one. So there is one verdict however often a rollout was begun, whatever Redis remembers of it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmark.items import Item
from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.errors import UserError
from rollout_tasks.runs.durable_files import link_once, write_atomically, write_once
from rollout_tasks.runs.item_paths import encode_id
from rollout_tasks.runs.provenance import provenance
from rollout_tasks.runs.verdict import Verdict, split_rollout_id
from rollout_tasks.validation_messages import shown

_RESULT = "result.json"
_RESERVE_BYTES = 16 << 20
"""Free space that a run needs to begin."""


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

    @property
    def events(self) -> Path:
        """Which worker used which VM when, one JSON object per line."""
        return self.path / "events.jsonl"

    @property
    def judged(self) -> Path:
        """What a judge model said about which answer, one JSON object per line."""
        return self.path / "judged.jsonl"

    def rollout(self, rollout_id: str) -> Path:
        """The folder of one rollout."""
        item_id, index = split_rollout_id(rollout_id)
        return self.path / encode_id(item_id) / str(index)

    def attempt(self, rollout_id: str, attempt: int) -> Path:
        """The folder of one attempt."""
        return self.rollout(rollout_id) / f"attempt-{attempt}"

    def create(
        self,
        config: RunConfig,
        items: Iterable[Item],
        *,
        data_path: str,
        data_name: str,
        left_out: Sequence[str] = (),
        doubted: Sequence[str] = (),
        images: Sequence[str] = (),
    ) -> None:
        """Writes run.json and items.jsonl.

        Args:
            config: The run's configuration.
            items: The run's items.
            data_path: Where the items came from.
            data_name: The benchmark's name.
            left_out: A sentence for each item of the data that the run leaves out.
            doubted: A sentence for each item whose score cannot be relied on.
            images: The images of the desktops.

        Raises:
            UserError: The folder exists already, cannot be written, or its disk is full.
        """
        above = self.path.parent
        try:
            above.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--output-dir: {above} cannot be made: {error.strerror}") from error
        try:
            self.path.mkdir()
        except FileExistsError as error:
            raise UserError(f"--run-id: {self.path} exists already; take another name, or --resume it") from error
        except OSError as error:
            raise UserError(f"--output-dir: {above} cannot be written: {error.strerror}") from error
        try:
            self._prove_space()
            lines = "".join(json.dumps(item.as_dict(), ensure_ascii=False) + "\n" for item in items)
            write_atomically(self.path / "items.jsonl", lines)
            document = {
                "run_id": self.path.name,
                "benchmark": {
                    "name": data_name,
                    "path": data_path,
                    "left_out": list(left_out),
                    "doubted": list(doubted),
                    "items_sha256": hashlib.sha256(lines.encode()).hexdigest(),
                },
                "made_by": provenance(),
                "images": list(images),
                "config": config.model_dump(mode="json"),
            }
            write_atomically(self.path / "run.json", json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        except BaseException as error:
            self.discard()
            if isinstance(error, OSError):
                raise UserError(f"--output-dir: {above} cannot be written: {error.strerror}") from error
            raise

    def discard(self) -> None:
        """Removes the folder of a run that never began."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _prove_space(self) -> None:
        probe, link = self.path / ".space", self.path / ".link"
        try:
            with probe.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, _RESERVE_BYTES)
            link.hardlink_to(probe)
        except OSError as error:
            if error.errno in {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}:
                error.strerror = "its file system has no hard links, by which each rollout gets one verdict only"
            raise
        finally:
            probe.unlink(missing_ok=True)
            link.unlink(missing_ok=True)

    def document(self) -> dict[str, Any]:
        """Returns the contents of run.json.

        Raises:
            UserError: It is missing or broken.
        """
        path = self.path / "run.json"
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise UserError(f"{self.path} is not a run's folder: it has no run.json") from error
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read: {error}") from error
        if not isinstance(values, dict) or not isinstance(values.get("config"), dict):
            raise UserError(f"{path} is not a run's description: it has no config")
        return values

    def record_resume(self, config: RunConfig) -> None:
        """Records what a resumed run may change: its model's endpoint and prices, and what it may cost.

        The description keeps the earlier endpoints.

        Raises:
            UserError: The description is missing or broken, or cannot be written.
        """
        document = self.document()
        before = document["config"].setdefault("model", {})
        model = {name: getattr(config.model, name) for name in ("base_url", "prompt_price", "completion_price")}
        if model["base_url"] is None:
            model["base_url"] = before.get("base_url")
        if model["base_url"] != before.get("base_url"):
            document["earlier_base_urls"] = [*document.get("earlier_base_urls", []), before.get("base_url")]
        changed = document["config"] | {"model": before | model, "max_cost": config.max_cost}
        if changed == document["config"]:
            return
        document["config"] = changed
        path = self.path / "run.json"
        try:
            write_atomically(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror}") from error

    def config(self) -> RunConfig:
        """Returns the run's configuration."""
        return parse_config(self.document()["config"], where=str(self.path / "run.json"))

    def items(self) -> list[Item]:
        """Returns the run's items, in the order of the benchmark.

        Raises:
            UserError: items.jsonl is missing or broken.
        """
        return list(self.each_item())

    def each_item(self) -> Iterator[Item]:
        """Yields the run's items one by one, for runs that are too large for memory.

        Raises:
            UserError: items.jsonl is missing or broken.
        """
        path = self.path / "items.jsonl"
        number = 0
        try:
            with path.open(encoding="utf-8", newline="\n") as file:
                for number, line in enumerate(file, start=1):
                    try:
                        yield Item.from_dict(_object(line))
                    except ValueError as error:  # includes BenchmarkError
                        raise UserError(f"{path}, line {number}: {error}") from error
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path} cannot be read: {error}") from error
        if not number:
            raise UserError(f"{path} holds no item")

    def count_items(self) -> int:
        """Returns how many items the run has.

        Raises:
            UserError: items.jsonl cannot be read.
        """
        path = self.path / "items.jsonl"
        try:
            with path.open("rb") as file:
                return sum(1 for _ in file)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from error

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
        if (settled := self._settled(verdict.rollout_id)) is not None:
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
        settled = self._settled(rollout_id)
        if settled is not None:
            return settled
        for number in reversed(self._numbers(rollout_id)):
            ended = self._attempt_result(rollout_id, number)
            if ended is not None and not ended.worth_repeating:
                return ended
        return None

    def verdict(self, rollout_id: str) -> Verdict | None:
        """Returns the rollout's verdict; if none was settled, that of its last attempt, as in runs of older versions.

        Raises:
            UserError: It cannot be read.
        """
        settled = self._settled(rollout_id)
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

    def begun_attempts(self, rollout_id: str) -> list[Path]:
        """Returns the folder of each attempt that was begun, in order."""
        return [self.attempt(rollout_id, number) for number in self._numbers(rollout_id)]

    def remove_temporary_files(self, rollout_id: str) -> None:
        """Removes temporary files of killed executions of a rollout; one that still lives writes its file again."""
        for path in self.rollout(rollout_id).rglob(".*"):
            if path.suffix in {".tmp", ".part"}:
                path.unlink(missing_ok=True)

    def _numbers(self, rollout_id: str) -> list[int]:
        return _attempts_in(self.rollout(rollout_id))

    def _numbers_set_aside(self, rollout_id: str) -> list[int]:
        return [number for path in self.rollout(rollout_id).glob("earlier-*") for number in _attempts_in(path)]

    def _settled(self, rollout_id: str) -> Verdict | None:
        try:
            return self._read(self.rollout(rollout_id) / _RESULT)
        except FileNotFoundError:
            return None

    def _attempt_result(self, rollout_id: str, number: int) -> Verdict | None:
        try:
            return self._read(self.attempt(rollout_id, number) / _RESULT)
        except FileNotFoundError:
            return None

    def _read(self, path: Path) -> Verdict:
        try:
            return Verdict.from_dict(_object(path.read_text(encoding="utf-8")))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(str(path)) from error
        except (OSError, ValueError, TypeError) as error:
            raise UserError(f"{path} cannot be read: {error}") from error

    def verdicts(self, rollout_ids: Iterable[str]) -> Iterator[Verdict]:
        """Yields the verdicts of the rollouts that have one."""
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


def _attempts_in(path: Path) -> list[int]:
    try:
        names = os.listdir(path)  # noqa: PTH208 - half the time of Path's
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name[8:]) for name in names if re.fullmatch(r"attempt-\d+", name))


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return value


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
