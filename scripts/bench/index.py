"""How long trainers wait for groups from an index of a million rollouts: to see them, and to take them while others do so, too.

The index must be new, and is full afterwards. Its address comes from ROLLOUT_INDEX_URL. Rewards are drawn: each item has its own
chance of success. Each item's rollouts come eight at a time, of one version; all are unused, so that each may be in a group.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from sqlalchemy import Select, case, func, insert, literal, select, union_all

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rollout_tasks.settings import settings
from rollout_tasks.training.index import Index, Rule
from rollout_tasks.training.index.claims import take
from rollout_tasks.training.index.counts import at_a_time, recount
from rollout_tasks.training.index.database import Database
from rollout_tasks.training.index.tables import checkpoints, claims, insert_one, items, key_of, rollouts, runs, uses
from rollout_tasks.training.index.versions import place

TOGETHER = 8
"""Rollouts of an item that have one version, one after the other."""
PRIME = 1_009
COLUMNS = ("run", "item", "number", "attempt", "reward", "left_out", "failure_class", "checkpoint", "step", "ended")


def fill(database: Database, count: int, of_items: int, versions: int) -> float:
    """Fills a new index; returns the seconds that it took."""
    began = time.monotonic()
    with database.writing() as connection:
        if connection.execute(select(func.count()).select_from(items)).scalar():
            raise SystemExit("ROLLOUT_INDEX_URL: the index is not new")
        place(connection, [f"step-{number}" for number in range(versions)])
        new = {"key": key_of("bench"), "run_id": "bench", "folder": "/", "items_sha256": "", "added": 0}
        run = insert_one(connection, insert(runs).values(new))
        for names in at_a_time([f"item-{number}" for number in range(of_items)]):
            connection.execute(insert(items), [{"key": key_of(name), "item_id": name} for name in names])
        numbers = list(connection.execute(select(items.c.id).order_by(items.c.id)).scalars())
    for some in at_a_time(numbers):
        with database.writing() as connection:
            connection.execute(insert(rollouts).from_select(COLUMNS, drawn(run, some, count // of_items, versions)))
            recount(connection, some)
    return time.monotonic() - began


def drawn(run: int, some: Sequence[int], each: int, versions: int) -> Select[Any]:
    """Selects rollouts of some items, which the database itself makes up: sent one by one, they would take many minutes.

    What is drawn are remainders of products with primes, which look random enough.
    """
    of_item = union_all(
        *(select(literal(at).label("number"), literal(at // TOGETHER).label("part")) for at in range(each))
    ).subquery()
    item, number, part = items.c.id, of_item.c.number, of_item.c.part
    chance = item * 331 % PRIME
    reward = case(((item * 48_271 + number * 69_621 + item * number * 31) % PRIME < chance, 1.0), else_=0.0)
    step = (item * 7_919 + part * 104_729 + item * part * 13) % versions
    return (
        select(
            literal(run),
            item,
            number,
            literal(1),
            reward,
            literal(""),
            literal(""),
            checkpoints.c.id,
            checkpoints.c.step,
            number + 0.0,
        )
        .select_from(items.join(of_item, literal(True)).join(checkpoints, checkpoints.c.step == step))
        .where(item.in_(some))
        .order_by(part, item, number)
    )


def look(index: Index, rule: Rule, groups: int, rounds: int) -> dict[str, float]:
    """Asks for groups again and again; each time with a new connection."""
    times, found = [], 0
    for _ in range(rounds):
        began = time.monotonic()
        found = len(index.groups(rule, most=groups))
        times.append(time.monotonic() - began)
    return {"groups": found, **percentiles(times)}


def trainer(url: str, rule: Rule, groups: int, rounds: int, name: str) -> list[float]:
    """Takes groups again and again; returns the seconds of each."""
    database, times = Database(url), []
    for _ in range(rounds):
        began = time.monotonic()
        with database.writing() as connection:
            take(connection, rule, groups, name)
        times.append(time.monotonic() - began)
    return times


def percentiles(times: Sequence[float]) -> dict[str, float]:
    """Returns the median and the 99th percentile in milliseconds."""
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {"p50_ms": round(1000 * cuts[49], 1), "p99_ms": round(1000 * cuts[98], 1)}


def main(
    count: Annotated[int, typer.Option("--rollouts", min=1, help="Rollouts in the index.")] = 1_000_000,
    of_items: Annotated[int, typer.Option("--items", min=1, help="Of how many items.")] = 10_000,
    versions: Annotated[int, typer.Option(min=1, help="Of how many versions of the model.")] = 60,
    groups: Annotated[int, typer.Option(min=1, help="Groups that a trainer asks for.")] = 64,
    rounds: Annotated[int, typer.Option(min=2, help="How often it is asked.")] = 100,
    trainers: Annotated[int, typer.Option(min=1, help="How many take groups at the same time.")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Fill a new index with drawn rollouts, and measure how long trainers wait for groups."""
    url = settings().index_url
    if url is None:
        raise SystemExit("ROLLOUT_INDEX_URL is not set: the bench fills the index that it names")
    address = url.get_secret_value()
    database = Database(address)
    found: dict[str, Any] = {
        "index": str(database).partition(":")[0],
        "rollouts": count,
        "items": of_items,
        "versions": versions,
    }
    found["filled_seconds"] = round(fill(database, count, of_items, versions), 1)
    index = Index(address)
    rules = {"two newest versions": Rule(), "at most 4 steps old": Rule(staleness=4), "no pool": Rule(pool=False)}
    found["seen"] = {name: look(index, rule, groups, rounds) for name, rule in rules.items()}
    each = max(2, rounds // trainers)
    with multiprocessing.get_context("spawn").Pool(trainers) as pool:
        asked = [(address, Rule(staleness=versions), groups, each, f"trainer-{number}") for number in range(trainers)]
        times = [one for own in pool.starmap(trainer, asked) for one in own]
    with database.reading() as connection:
        taken, distinct = connection.execute(
            select(func.count(), func.count(uses.c.rollout.distinct())).select_from(uses)
        ).one()
        number = connection.execute(select(func.count()).select_from(claims)).scalar()
    found["taken"] = {
        "trainers": trainers,
        "claims": number,
        "rollouts": taken,
        "twice": taken - distinct,
        **percentiles(times),
    }
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return
    table = Table("what", "groups", "p50 (ms)", "p99 (ms)", title=f"{count:,} rollouts in {found['index']}")
    for name, row in found["seen"].items():
        table.add_row(f"seen: {name}", str(row["groups"]), str(row["p50_ms"]), str(row["p99_ms"]))
    row = found["taken"]
    said = f"taken by {trainers} trainers at once: {taken:,} rollouts, {row['twice']} twice"
    table.add_row(said, str(groups), str(row["p50_ms"]), str(row["p99_ms"]))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
