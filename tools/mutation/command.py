"""Plants small defects in a module, one at a time, and counts those that its tests notice.

The defects are drawn by a seed: the same draw of the same source is the same list. The working tree is never edited: they are
planted in copies of it. tools/mutation/modules.py says which tests belong to which module.
"""

from __future__ import annotations

import json
import queue
import random
import threading
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tools.mutation.judging import BaselineFailed, Copy, copy_of
from tools.mutation.lua_rules import lua_candidates
from tools.mutation.modules import MODULES, Module
from tools.mutation.mutant import Candidate, Mutant
from tools.mutation.python_rules import python_candidates

REPOSITORY = Path(__file__).resolve().parents[2]
EXPLAINED = REPOSITORY / "tests" / "mutation_explained.toml"
ENOUGH = 0.9
"""The share of the defects that should be noticed or explained."""

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one defect, as a results file keeps it."""

    module: str
    id: str
    file: str
    line: int
    kind: str
    before: str
    after: str
    outcome: str
    by: str
    seconds: float


def every_candidate(module: Module, root: Path) -> list[Candidate]:
    """Returns all places of a module's files where a rule can plant a defect."""
    found: list[Candidate] = []
    for path in module.paths(root):
        rules = lua_candidates if path.suffix == ".lua" else python_candidates
        found += rules(str(path.relative_to(root)), path.read_text("utf-8"))
    return found


def draw_mutants(candidates: Iterable[Candidate], count: int, seed: int) -> list[Mutant]:
    """Draws so many, each from another line as long as there are lines."""
    by_line: dict[tuple[str, int], list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_line[candidate.file, candidate.place[0]].append(candidate)
    random_ = random.Random(seed)
    lines = [by_line[key] for key in sorted(by_line)]
    for line in lines:
        random_.shuffle(line)
    drawn: dict[str, Mutant] = {}
    while lines:
        random_.shuffle(lines)
        for line in lines:
            if len(drawn) == count:
                return list(drawn.values())
            mutant = line.pop().mutant()
            if mutant is not None:
                drawn.setdefault(mutant.id, mutant)
        lines = [line for line in lines if line]
    return list(drawn.values())


def explanation(row: Row, explained: Sequence[dict[str, str]]) -> str | None:
    """Returns why nobody needs to notice a defect, or None. An entry without ``after`` speaks for whatever happens to its line."""
    for entry in explained:
        if (entry["file"], entry["before"]) == (row.file, row.before) and entry.get("after", row.after) == row.after:
            return entry["why"]
    return None


def read_explained(file: Path = EXPLAINED) -> list[dict[str, str]]:
    """Returns the entries of the file that explains survivors."""
    return list(tomllib.loads(file.read_text("utf-8")).get("explained", []))


@application.command()
def mutation(
    module: Annotated[
        list[str] | None, typer.Option(help=f"Where: {', '.join(MODULES)}. Repeatable; default: all.")
    ] = None,
    draw: Annotated[int, typer.Option(help="How many defects per module.")] = 60,
    seed: Annotated[int, typer.Option(help="Another seed draws others.")] = 1,
    resume: Annotated[
        Path | None, typer.Option(help="Keep each outcome in this file, and judge only what it does not have yet.")
    ] = None,
    survivors: Annotated[
        bool, typer.Option(help="Judge again those that survived according to --resume's file.")
    ] = False,
    shard: Annotated[str, typer.Option(help="Judge only this part of the draw, as in 2/4.")] = "1/1",
    jobs: Annotated[int, typer.Option(min=1, help="Copies of the tree that are worked in at a time.")] = 2,
    first_group: Annotated[bool, typer.Option("--fast", help="Run only each module's fast tests.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the draw and plant nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Do the tests notice? Plants small defects one at a time and runs the tests that belong to the place.

    A defect counts as [bold]noticed[/bold] when a test fails or does not end. Those that nobody needs to notice are explained in
    tests/mutation_explained.toml; every other survivor asks for a test. As in:

    [bold]mutation.py --module sandbox --draw 60 --seed 1 --resume build/sandbox.jsonl[/bold]

    It takes from a few minutes to an hour a module. Ends with 0 when at least 90 % of each module's are noticed and every
    survivor is explained, else with 1.
    """
    names = module or list(MODULES)
    for name in names:
        if name not in MODULES:
            raise typer.BadParameter(f"there is no module {name!r}: choose from {', '.join(MODULES)}")
    part, parts = _parsed_shard(shard)
    known = {row.id: row for row in _read_rows(resume)}
    if survivors:
        known = {key: row for key, row in known.items() if row.outcome != "survived"}
    rows: list[Row] = []
    for name in names:
        drawn = draw_mutants(every_candidate(MODULES[name], REPOSITORY), draw, seed)[part - 1 :: parts]
        if dry_run:
            for mutant in drawn:
                print(mutant)
            continue
        groups = MODULES[name].tests[:1] if first_group else MODULES[name].tests
        to_do = [mutant for mutant in drawn if mutant.id not in known]
        try:
            for row in _judge_all(name, to_do, groups, jobs, resume):
                known[row.id] = row
        except BaselineFailed as failure:
            console.print(f"[red]{name}:[/red] {failure}", markup=True, highlight=False)
            raise typer.Exit(2) from None
        rows += [known[mutant.id] for mutant in drawn]
    if not dry_run:
        raise typer.Exit(_report(rows, names, as_json=as_json))


def _parsed_shard(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise typer.BadParameter(f"{text!r} is not a part of a draw: give it as in 2/4")
    return int(part), int(parts)


def _read_rows(file: Path | None) -> list[Row]:
    if file is None or not file.is_file():
        return []
    return [Row(**json.loads(line)) for line in file.read_text("utf-8").splitlines() if line.endswith("}")]


def _judge_all(
    name: str, mutants: Sequence[Mutant], groups: Sequence[Sequence[str]], jobs: int, resume: Path | None
) -> list[Row]:
    """Judges every defect, several at a time, each in a copy of its own."""
    if not mutants:
        return []
    rows: list[Row] = []
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    writing = threading.Lock()

    def work(copy: Copy, limits: Sequence[float]) -> None:
        while True:
            try:
                mutant = waiting.get_nowait()
            except queue.Empty:
                return
            judged = copy.judge(mutant, groups, limits)
            said = {"kind": mutant.kind, "before": mutant.before, "after": mutant.after, **asdict(judged)}
            row = Row(module=name, id=mutant.id, file=mutant.file, line=mutant.place[0], **said)
            with writing:
                rows.append(row)
                if resume is not None:
                    resume.parent.mkdir(parents=True, exist_ok=True)
                    with resume.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(row)) + "\n")
                console.print(f"{name} {len(rows)}/{len(mutants)}: {row.outcome} {row.by} {mutant}", markup=False)

    with ExitStack() as stack:
        copies = [stack.enter_context(copy_of(REPOSITORY)) for _ in range(min(jobs, len(mutants)))]
        console.print(f"{name}: {len(mutants)} defects to plant; first the tests without any ...", markup=False)
        limits = copies[0].measure(groups)
        threads = [threading.Thread(target=work, args=(copy, limits), daemon=True) for copy in copies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return rows


def _report(rows: Sequence[Row], names: Sequence[str], *, as_json: bool) -> int:
    """Prints what was noticed; returns the exit status."""
    explained = read_explained()
    figures: dict[str, dict[str, Any]] = {}
    for name in names:
        mine = [row for row in rows if row.module == name]
        survived = [row for row in mine if row.outcome == "survived"]
        unexplained = [asdict(row) for row in survived if explanation(row, explained) is None]
        figures[name] = {
            "planted": len(mine),
            "noticed": len(mine) - len(survived),
            "explained": len(survived) - len(unexplained),
            "survivors": unexplained,
        }
    if as_json:
        print(json.dumps(figures, indent=2))
    else:
        table = Table("module", "noticed", "planted", "explained", "share")
        for name, figure in figures.items():
            share = figure["noticed"] / figure["planted"] if figure["planted"] else 1.0
            counts = [str(figure[key]) for key in ("noticed", "planted", "explained")]
            table.add_row(name, *counts, f"{share:.0%}")
        Console().print(table)
        for figure in figures.values():
            for row in figure["survivors"]:
                print(f"{row['file']}:{row['line']}: {row['kind']}: {row['before']}  ->  {row['after']}")
    good = all(
        figure["noticed"] >= ENOUGH * figure["planted"] and not figure["survivors"] for figure in figures.values()
    )
    return 0 if good else 1


def main() -> None:
    """Runs the command."""
    application()
