"""A run's folder: the durable truth. Everything in it is written under a temporary name, synced and renamed.

    <output_dir>/<run id>/run.json items.jsonl evaluation.json events.jsonl report.md judged.jsonl
                          <item id>/<index>/attempt-<k>/result.json messages.json trajectory.jsonl step_000.png ...

An attempt that has a `result.json` was complete; of several, the highest is the one that counts (a later attempt exists only
where the earlier one lost its claim before committing).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmark.errors import BenchmarkError
from benchmark.items import Item
from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.errors import UserError
from rollout_tasks.runs.verdict import Verdict, split_rollout_id
from rollout_tasks.wording import shown

_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
_RUN_FILES = frozenset(
    {"run.json", "items.jsonl", "evaluation.json", "events.jsonl", "report.md", "judged.jsonl", "logs"}
)
_PART_BYTES = 240
"""Below every common file system's limit of 255 bytes for one name."""
_RESERVE_BYTES = 16 << 20
"""Free space a run needs to begin at all."""


def encode_id(item_id: str) -> str:
    """An item's id as one or more safe path components, reversibly.

    Bytes other than letters, digits, ``-``, ``_`` and inner ``.`` become ``=XX``; a result longer than a file name may be is
    continued in a folder below, marked by a trailing ``=``.
    """
    encoded = "".join(chr(byte) if byte in _SAFE else f"={byte:02X}" for byte in item_id.encode())
    if encoded.startswith(".") or encoded in _RUN_FILES:
        encoded = f"={ord(encoded[0]):02X}" + encoded[1:]
    parts = [encoded[at : at + _PART_BYTES] for at in range(0, len(encoded), _PART_BYTES)]
    return "=/".join(parts)


def decode_id(path: str) -> str:
    """Reads `encode_id` back."""
    encoded = path.replace("=/", "")
    raw = re.sub(rb"=([0-9A-F]{2})", lambda match: bytes([int(match[1], 16)]), encoded.encode())
    return raw.decode()


def write_atomically(path: Path, text: str, *, sync: bool = True) -> None:
    """Writes a whole file or nothing: temporary name, sync, rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class RunFolder:
    """One run's files."""

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
        """Who used which VM when, one JSON object a line."""
        return self.path / "events.jsonl"

    @property
    def judged(self) -> Path:
        """What a judging model has said of which answer, one JSON object a line."""
        return self.path / "judged.jsonl"

    def attempt(self, rollout_id: str, attempt: int) -> Path:
        """The folder of one attempt."""
        item_id, index = split_rollout_id(rollout_id)
        return self.path / encode_id(item_id) / str(index) / f"attempt-{attempt}"

    def create(self, config: RunConfig, items: Iterable[Item], *, data_path: str, data_name: str) -> None:
        """Writes run.json and items.jsonl.

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
            lines = (json.dumps(item.as_dict(), ensure_ascii=False) + "\n" for item in items)
            write_atomically(self.path / "items.jsonl", "".join(lines))
            document = {
                "run_id": self.path.name,
                "benchmark": {"name": data_name, "path": data_path},
                "config": config.model_dump(mode="json"),
            }
            write_atomically(self.path / "run.json", json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        except OSError as error:
            self.discard()
            raise UserError(f"--output-dir: {above} cannot be written: {error.strerror}") from error

    def discard(self) -> None:
        """Removes the folder of a run that nobody ever began."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _prove_space(self) -> None:
        probe = self.path / ".space"
        try:
            with probe.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, _RESERVE_BYTES)
        finally:
            probe.unlink(missing_ok=True)

    def document(self) -> dict[str, Any]:
        """What run.json says.

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

    def config(self) -> RunConfig:
        """The run's configuration."""
        return parse_config(self.document()["config"], where=str(self.path / "run.json"))

    def items(self) -> list[Item]:
        """The run's items, in the order of the benchmark.

        Raises:
            UserError: items.jsonl is missing or broken.
        """
        path = self.path / "items.jsonl"
        items = []
        try:
            for number, line in enumerate(path.read_text(encoding="utf-8").rstrip("\n").split("\n"), start=1):
                try:
                    items.append(Item.from_dict(_object(line)))
                except (ValueError, BenchmarkError) as error:
                    raise UserError(f"{path}, line {number}: {error}") from error
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path} cannot be read: {error}") from error
        return items

    def write_result(self, verdict: Verdict) -> None:
        """Writes an attempt's verdict; after this the attempt is complete."""
        folder = self.attempt(verdict.rollout_id, verdict.attempt)
        try:
            write_atomically(folder / "result.json", verdict.as_json() + "\n")
        except FileNotFoundError:  # the attempt recorded nothing
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / "result.json", verdict.as_json() + "\n")

    def withdraw_result(self, verdict: Verdict) -> None:
        """Sets aside the verdict of an attempt that had lost its claim."""
        path = self.attempt(verdict.rollout_id, verdict.attempt) / "result.json"
        if path.exists():
            path.rename(path.with_name("result.refused.json"))

    def verdict(self, rollout_id: str) -> Verdict | None:
        """The verdict that counts, if the rollout has one."""
        parent = self.attempt(rollout_id, 1).parent
        if not parent.is_dir():
            return None
        attempts = sorted(int(entry.name[8:]) for entry in parent.iterdir() if re.fullmatch(r"attempt-\d+", entry.name))
        for attempt in reversed(attempts):
            path = parent / f"attempt-{attempt}" / "result.json"
            try:
                return Verdict.from_dict(_object(path.read_text(encoding="utf-8")))
            except FileNotFoundError:
                continue
            except (OSError, ValueError, TypeError, KeyError) as error:
                raise UserError(f"{path} cannot be read: {error}") from error
        return None

    def verdicts(self, rollout_ids: Iterable[str]) -> Iterator[Verdict]:
        """The verdicts that count, of the rollouts that have one."""
        for rollout_id in rollout_ids:
            verdict = self.verdict(rollout_id)
            if verdict is not None:
                yield verdict

    def set_aside(self, rollout_id: str) -> None:
        """Moves a rollout's earlier attempts out of the way, because a resumed run tries it again."""
        parent = self.attempt(rollout_id, 1).parent
        if not parent.is_dir():
            return
        attempts = [entry for entry in parent.iterdir() if re.fullmatch(r"attempt-\d+", entry.name)]
        if attempts:
            earlier = sum(1 for entry in parent.iterdir() if entry.name.startswith("earlier-"))
            target = parent / f"earlier-{earlier + 1}"
            target.mkdir()
            for entry in attempts:
                entry.rename(target / entry.name)


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return value


def find_run(run: str, output_dir: Path) -> RunFolder:
    """The folder of a run given by id, or by its path.

    Raises:
        UserError: There is no such run.
    """
    places = (Path(run), output_dir / run)
    for path in places:
        if os.path.isfile(path / "run.json"):  # noqa: PTH113 - unlike Path's, false for names that no file can have
            return RunFolder(path.resolve())
    raise UserError(f"no run {shown(run)}: neither {shown(str(places[0]))} nor {shown(str(places[1]))} has a run.json")
