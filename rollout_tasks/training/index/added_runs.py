"""Adds scored runs to the index; adding one again changes only what its report says otherwise."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.index import seed_schema
from rollout_tasks.training.index.counts import at_a_time, recount
from rollout_tasks.training.index.database import Database
from rollout_tasks.training.index.found_rollouts import FoundRollout, checked_rows, find
from rollout_tasks.training.index.tables import insert_one, items, key_of, rollouts, runs, traces
from rollout_tasks.training.index.versions import place
from rollout_tasks.training.scored_rollouts import LeftOut
from rollout_tasks.unicode_text import storable

_ITEMS_AT_A_TIME = 50
"""Items of one transaction: other writers wait for it."""
_LONGEST_RUN_ID = 255
_CHANGING = ("reward", "left_out", "failure_class", "attempt", "ended")
"""Columns that a resumed or rescored run may change."""

Known = Mapping[tuple[str, int], Any]
"""Rows of the table of rollouts, by item and index."""


@dataclass(frozen=True, slots=True)
class Added:
    """What adding a run did."""

    run_id: str
    new: int
    """Rollouts that the index did not have."""
    changed: int
    """Rollouts whose reward or result was another one."""
    unchanged: int
    left_out: Mapping[str, int]
    """How many of the run's rollouts a trainer cannot learn from, by the reason."""
    problem: str
    """What was wrong with the first that had no tokens or whose record could not be read: a sentence, or empty."""


def add_run(database: Database, folder: RunFolder, report: Path, *, seed: bool) -> Added:
    """Adds a run's rollouts, or what is new of them, some items after the other: if it is cut off, add the run again.

    Args:
        database: The index's.
        folder: The run.
        report: The JSON report whose scores are the rewards.
        seed: Whether the older system's tables are written, too.

    Raises:
        BenchmarkError: The report is missing or cannot be read.
        UserError: The folder is not a run's, another run has its id, or the report has what none has.
    """
    rows = checked_rows(report)
    with database.writing() as connection:
        run = _place_run(connection, folder)
    questions = {item.id: item.question for item in folder.description.each_item()} if seed else {}
    problems, counted, left_out = LeftOut(), Counter[str](), Counter[str]()
    for some in at_a_time(rows, _ITEMS_AT_A_TIME):
        with database.reading() as connection:
            known = _known(connection, run, [item_id for item_id, _ in some])
        rewards = {place: row.reward for place, row in known.items()}
        looked_up = [
            find(folder, item_id, row, rewards.get((item_id, row["index"])), problems)
            for item_id, own in some
            for row in own
        ]
        found = [one for one in looked_up if one is not None]
        left_out.update(one.left_out for one in found if one.left_out)
        with database.writing() as connection:
            new, changed = _store(connection, run, found)
            if seed:
                seed_schema.record_rollouts(connection, new, changed, questions)
        counted.update(new=len(new), changed=len(changed), all=len(looked_up))
    unchanged = counted["all"] - counted["new"] - counted["changed"]
    return Added(_id_of(folder), counted["new"], counted["changed"], unchanged, dict(left_out), problems.first_problem)


def _place_run(connection: Connection, folder: RunFolder) -> int:
    """Returns the run's number in the index.

    Raises:
        UserError: The folder is not a run's, or another run has its id.
    """
    folder.description.config()  # it is a run's
    path, run_id = folder.path.resolve(), _id_of(folder)
    if storable(str(path)) != str(path):
        raise UserError(f"{str(path)!a}: the folder's path is not UTF-8")
    values = {"folder": str(path), "items_sha256": _items_of(path)}
    known = connection.execute(select(runs).where(runs.c.key == key_of(run_id))).first()
    if known is None:
        new = {"key": key_of(run_id), "run_id": run_id, "added": time.time()}
        return insert_one(connection, insert(runs).values(**values, **new))
    same = known.items_sha256 == values["items_sha256"]
    if not same or (known.folder != str(path) and Path(known.folder, "run.json").is_file()):
        raise UserError(f"{path}: the index has another run {run_id}, in {known.folder}: each needs an id of its own")
    connection.execute(update(runs).where(runs.c.id == known.id).values(folder=str(path)))  # it may have been moved
    return int(known.id)


def _id_of(folder: RunFolder) -> str:
    """Returns the run's id, which stays as it is when its folder gets another name."""
    run_id = folder.description.document().get("run_id")
    is_id = isinstance(run_id, str) and 0 < len(run_id) <= _LONGEST_RUN_ID and storable(run_id) == run_id
    return str(run_id) if is_id else folder.path.name


def _items_of(folder: Path) -> str:
    """Returns the SHA-256 of what a run rolls out; a resume does not change it."""
    try:
        with (folder / "items.jsonl").open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{folder / 'items.jsonl'} cannot be read: {error.strerror}") from error


def _known(connection: Connection, run: int, item_ids: Sequence[str]) -> Known:
    found = (
        select(rollouts, items.c.item_id)
        .join(items, items.c.id == rollouts.c.item)
        .where(rollouts.c.run == run, items.c.key.in_({key_of(item_id) for item_id in item_ids}))
    )
    return {(row.item_id, row.number): row for row in connection.execute(found)}


def _store(connection: Connection, run: int, found: Sequence[FoundRollout]) -> tuple[list[int], list[int]]:
    """Adds or changes rollouts of some items.

    Returns:
        The numbers in the index of those that are new, and of those that changed.
    """
    item_ids = list(dict.fromkeys(one.item_id for one in found))
    known = _known(connection, run, item_ids)
    new = [one for one in found if (one.item_id, one.index) not in known]
    changed = [one for one in found if (row := known.get((one.item_id, one.index))) and _differs(one, row)]
    if not new and not changed:
        return [], []
    of_item = _place_items(connection, item_ids)
    of_version = place(connection, dict.fromkeys(one.version for one in [*new, *changed] if one.reward is not None))
    for one in changed:
        values = _values(one) | ({} if one.reward is None else of_version[one.version]._asdict())
        connection.execute(update(rollouts).where(rollouts.c.id == known[one.item_id, one.index].id).values(**values))
    if new:
        where = [{"run": run, "item": of_item[one.item_id], "number": one.index} for one in new]
        nowhere = {"checkpoint": None, "step": None}
        versions = [nowhere if one.reward is None else of_version[one.version]._asdict() for one in new]
        rows = [_values(one) | at | version for one, at, version in zip(new, where, versions, strict=True)]
        connection.execute(insert(rollouts), rows)
    stored = _known(connection, run, item_ids)
    _store_traces(connection, {stored[one.item_id, one.index].id: one for one in [*new, *changed]})
    recount(connection, {of_item[one.item_id] for one in [*new, *changed]})
    added, updated = ([stored[one.item_id, one.index].id for one in some] for some in (new, changed))
    return added, updated


def _values(one: FoundRollout) -> dict[str, Any]:
    return {name: getattr(one, name) for name in _CHANGING}


def _differs(one: FoundRollout, row: Any) -> bool:
    return any(getattr(row, name) != value for name, value in _values(one).items())


def _place_items(connection: Connection, item_ids: Sequence[str]) -> dict[str, int]:
    """Returns the items' numbers in the index; those that it does not know are added."""
    keys = {key_of(item_id): item_id for item_id in item_ids}
    chosen = select(items.c.item_id, items.c.id).where(items.c.key.in_(keys))
    found = {row.item_id: row.id for row in connection.execute(chosen)}
    if new := [{"key": key, "item_id": item_id} for key, item_id in keys.items() if item_id not in found]:
        connection.execute(insert(items), new)
        found = {row.item_id: row.id for row in connection.execute(chosen)}
    return found


def _store_traces(connection: Connection, found: Mapping[int, FoundRollout]) -> None:
    """Replaces the traces of rollouts, by their number in the index; what became unreadable keeps those that it had."""
    with_traces = {number: one for number, one in found.items() if one.traces}
    for some in at_a_time(list(with_traces)):
        connection.execute(delete(traces).where(traces.c.rollout.in_(some)))
    if rows := [{"rollout": number, **trace} for number, one in with_traces.items() for trace in one.traces]:
        connection.execute(insert(traces), rows)
