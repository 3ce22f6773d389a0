"""Copies a run's folder to a URL, while the run goes on if it must: what is complete there, unit by unit. Disturbs no rollout."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rollout_tasks.errors import UserError
from rollout_tasks.runs import ending
from rollout_tasks.runs.copies import names, run_units
from rollout_tasks.runs.copies.local_folder import Changed, HashedFile, LocalFolder
from rollout_tasks.runs.copies.manifest import MOST_FILES
from rollout_tasks.runs.copies.remote_copy import RemoteCopy
from rollout_tasks.runs.copies.remote_folder import RemoteFolder, Say
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import rollout_ids
from rollout_tasks.validation_messages import shown

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 15.0
"""Seconds between two looks at a run that goes on: fewer after one that found something."""
_QUIET_SECONDS = 24 * 3600.0
"""How long a run may get no result before it is followed no more."""
_MOST_LOOKS = 5
"""At a run's files, while they are changed in the middle of being copied."""
_MOST_DESCRIPTION_BYTES = 64 << 20


@dataclass(slots=True)
class Copied:
    """What a command did, and what there is now."""

    run_id: str
    url: str
    over: bool = False
    """Whether the run was over."""
    rollouts: int = 0
    """Of the run."""
    copied: int = 0
    """Rollouts whose verdict is at the URL."""
    files_sent: int = 0
    files_kept: int = 0
    """That were there already."""
    files_removed: int = 0
    """That a resume has moved, or whose report it has removed."""
    bytes_sent: int = 0
    left_out: int = 0
    """Links, special files, and files with names that no copy can have."""
    problems: list[str] = field(default_factory=list)
    """Sentences about what could not be copied."""


def copy_run(folder: RunFolder, remote: RemoteFolder, say: Say, *, follow: bool = False) -> Copied:
    """Copies a run.

    Args:
        folder: The run's.
        remote: Where the copy goes; may have an earlier one.
        say: Called with a sentence about how far it is, often.
        follow: Goes on until the run is over.

    Raises:
        UserError: The folder is not a run's; there is something else at the URL; or a run that is followed gets no results.
        RemoteError: The URL refuses, or cannot be reached for too long.
    """
    _check_apart(folder.path, remote)
    rollouts = rollout_ids(folder.description.each_item(), folder.description.config().rollouts_per_item)
    say(f"looks at what is at {remote.url}")
    copy = RemoteCopy(remote)
    _check_same_run(folder, copy)
    with LocalFolder(folder.path) as local:
        return _Copying(folder, local, copy, rollouts, say).until_done(follow=follow)


class _Copying:
    """One command's work."""

    def __init__(
        self, folder: RunFolder, local: LocalFolder, copy: RemoteCopy, rollouts: Sequence[str], say: Say
    ) -> None:
        self._folder = folder
        self._local = local
        self._copy = copy
        self._rollouts = rollouts
        self._say = say
        self._states: dict[str, tuple[tuple[str, int], ...]] = {}
        """Of the rollouts that are copied, what their folders were then."""
        self._odd: dict[str, int] = {}
        self._problems: dict[str, str] = {}

    def until_done(self, *, follow: bool) -> Copied:
        pause, last, looks = _FIRST_PAUSE, time.monotonic(), 0
        while True:
            over = ending.is_over(self._folder)
            if over or not follow:
                looks += 1
                self._states.clear()  # once more whatever the folders' times say
            wrote, changed = self._look()
            if (over or not follow) and (not changed or looks == _MOST_LOOKS):
                return self._copied(over=over)
            if wrote:
                pause, last = _FIRST_PAUSE, time.monotonic()
            self._wait(pause, time.monotonic() - last, changed=changed)
            pause = min(1.5 * pause, _LONGEST_PAUSE)

    def _wait(self, pause: float, quiet: float, *, changed: bool) -> None:
        missing = len(self._rollouts) - self._there()
        if quiet > _QUIET_SECONDS:
            raise UserError(
                f"run {self._folder.path.name} has got nothing new for {quiet / 3600:.0f} h; {missing} of"
                f" {len(self._rollouts)} rollouts have no verdict: what it has is copied to {self._copy.remote.url}"
            )
        waits_for = f"{missing} rollouts without a verdict" if missing else "the end of the run"
        if changed:
            waits_for = "files that are being changed"
        done = f"{self._there()} of {len(self._rollouts)} rollouts are copied"
        self._say(
            f"{done}; waits for {waits_for}" + (f", nothing new for {quiet // 60:.0f} min" if quiet >= 60 else "")
        )
        time.sleep(pause)

    def _look(self) -> tuple[bool, bool]:
        """Copies what is complete and not copied yet.

        Returns:
            Whether anything had to be written, and whether anything changed meanwhile.
        """
        self._problems.clear()
        wrote = self._unit(names.DESCRIPTION, lambda: run_units.description_files(self._local), mirror=True)
        reports = self._hashed(names.REPORTS, lambda: run_units.report_files(self._local))
        before = self._copy.manifests.get(names.REPORTS)
        if before is not None and reports is not None and set(before.files) - {file.name for file in reports}:
            self._copy.withdraw(names.REPORTS)  # a resume has removed them: what follows is not what they tell of
        for number, rollout_id in enumerate(self._rollouts):
            wrote = self._rollout(rollout_id, number) or wrote
        # As they were before, and not if a rollout is missing: whoever has them has the rollouts that they tell of.
        if reports is not None and not self._problems:
            wrote = self._replace(names.REPORTS, reports, mirror=True) or wrote
        return wrote, bool(self._problems)

    def _rollout(self, rollout_id: str, number: int) -> bool:
        folder, unit = names.rollout_folder(rollout_id), names.rollout_unit(rollout_id)
        if not names.is_unit(unit):
            self._problems[unit] = f"{shown(rollout_id)}: its name is too long for a copy"
            return False
        try:
            state = run_units.state_of(self._local, folder)
            if self._states.get(unit) == state:
                return False
            self._say(f"copies {self._folder.path.name}: rollout {number + 1} of {len(self._rollouts)}")
            self._odd[unit] = run_units.left_out(self._local, folder)
        except OSError as error:
            self._problems[unit] = f"{shown(folder)} cannot be read: {error.strerror}"
            return False
        wrote = self._unit(unit, lambda: run_units.rollout_files(self._local, folder))
        if unit not in self._problems:
            self._states[unit] = state
        return wrote

    def _unit(self, unit: str, files: Callable[[], Sequence[str]], *, mirror: bool = False) -> bool:
        hashed = self._hashed(unit, files)
        return hashed is not None and self._replace(unit, hashed, mirror=mirror)

    def _hashed(self, unit: str, files: Callable[[], Sequence[str]]) -> list[HashedFile] | None:
        with self._noting(unit):
            if len(found := files()) <= MOST_FILES:
                return [self._local.hashed(name) for name in found]
            self._problems[unit] = f"{unit} has {len(found):,} files, and a copy at most {MOST_FILES:,} of one rollout"
        return None

    def _replace(self, unit: str, files: Sequence[HashedFile], *, mirror: bool) -> bool:
        if not files and unit not in self._copy.manifests:
            return False
        with self._noting(unit):
            return self._copy.replace(unit, files, self._local, mirror=mirror)
        return False

    @contextmanager
    def _noting(self, unit: str) -> Iterator[None]:
        """Notes what is wrong with the files here, and goes on: it concerns one unit."""
        try:
            yield
        except Changed as error:
            self._problems[unit] = f"{shown(str(error))} was changed while it was copied"
        except OSError as error:
            self._problems[unit] = f"{shown(str(error.filename or unit))} cannot be read: {error.strerror}"

    def _there(self) -> int:
        """Returns how many rollouts' verdicts are at the URL."""
        return sum(
            manifest.complete and f"{names.rollout_folder(rollout_id)}/{names.RESULT}" in manifest.files
            for rollout_id in self._rollouts
            if (manifest := self._copy.manifests.get(names.rollout_unit(rollout_id))) is not None
        )

    def _copied(self, *, over: bool) -> Copied:
        counted = self._copy.counted
        return Copied(
            self._folder.path.name,
            self._copy.remote.url,
            over,
            len(self._rollouts),
            self._there(),
            counted["sent"],
            counted["kept"],
            counted["removed"],
            counted["bytes"],
            sum(self._odd.values()),
            list(self._problems.values()),
        )


def _check_apart(folder: Path, remote: RemoteFolder) -> None:
    """Checks that a copy on this machine is not in the run's own folder, nor around it.

    Raises:
        UserError: It is.
    """
    if remote.local_path is None:
        return
    here, there = folder.resolve(), remote.local_path.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise UserError(f"URL: {remote.url} and the run's folder {folder} are within each other: name another")


def _check_same_run(folder: RunFolder, copy: RemoteCopy) -> None:
    """Checks that there is nothing at a URL but an earlier copy of the run.

    Raises:
        UserError: There is.
    """
    url = copy.remote.url
    if copy.is_foreign:
        raise UserError(
            f"URL: {url} has files that no copy wrote: name a folder of the run's own, such as {url}/{folder.path.name}"
        )
    if any(unit.startswith(names.EXPORTS) for unit in copy.manifests):
        raise UserError(f"URL: {url} has an export: name another folder")
    size = copy.size_of("run.json")
    if size and size > _MOST_DESCRIPTION_BYTES:
        raise UserError(f"URL: {url} has a run.json of {size:,} bytes, which is none")
    there = run_id_of(copy.remote.read("run.json", size)) if size else None
    if there not in {None, folder.description.document().get("run_id")}:
        raise UserError(f"URL: {url} has a copy of run {shown(there)}: name another folder")


def run_id_of(content: bytes) -> str | None:
    """Returns the run's id in a run.json, which may be anybody's; None if there is none."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return str(document["run_id"]) if isinstance(document, dict) and "run_id" in document else None
