"""OSWorld's own tasks through the whole pipeline on desktops of this machine, and a page that says how each went.

A task with a script is rolled out by it, an infeasible one by giving up, any other by doing nothing; each again by doing
nothing, on the same VM right after. Not a test: tests/acceptance/test_osworld_offline.py asserts what this shows.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from rollout_tasks.key_values import key_values

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmark.items import Item, load_items
from rollout_tasks.cli import program
from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.embedded.run import run_embedded
from rollout_tasks.environments.osworld.needs import needs_of, total
from rollout_tasks.environments.osworld.task import metrics_of, task_config
from rollout_tasks.errors import UserError
from rollout_tasks.models.scripted.json_files import read_json
from rollout_tasks.models.scripted.scripts import METADATA_KEY
from rollout_tasks.runs import preflight
from rollout_tasks.runs.folder import RunFolder, find_run
from rollout_tasks.runs.submission import new_submission
from rollout_tasks.runs.verdict import Verdict, rollout_id_of

SCRIPTS = Path(__file__).resolve().parents[2] / "tests" / "acceptance" / "osworld_scripts"
UNSOLVED = "unsolved.json"
"""Beside the scripts: why tasks have none, by id."""
TRIED, IDLE = 0, 1
"""A task's rollouts."""
INSTRUCTION_CHARACTERS = 90


def _ending(text: str, action: str) -> list[dict[str, Any]]:
    return [{"text": text, "tool_calls": [{"name": "desktop_control", "arguments": {"action": action}}]}]


NOTHING = _ending("I do nothing.", "done")
GIVING_UP = _ending("This cannot be done.", "fail")


@dataclass(frozen=True, slots=True)
class Row:
    """How one task went."""

    domain: str
    task: str
    instruction: str
    tried: str
    """How: by a script, by FAIL, or not at all."""
    score: float | None
    """Of the first rollout."""
    idle_score: float | None
    """Of the agent that does nothing, right after."""
    same_vm: bool
    """Whether that was on the same VM, with nobody in between."""
    turns: int
    seconds: float
    """The first rollout had the VM."""
    why: str
    """Why it has no script, and why it failed; empty when all was well."""


def is_infeasible(item: Item) -> bool:
    """Whether the right answer is to give up."""
    return metrics_of(item.metadata["evaluator"]) == ["infeasible"]


def with_script(item: Item, scripts: Path) -> Item:
    """Returns the item with what the scripted model plays in its two rollouts."""
    path = scripts / f"{item.id}.json"
    if is_infeasible(item):
        tried: Any = GIVING_UP
    else:
        tried = read_json(path, "script") if path.is_file() else NOTHING
    return replace(item, metadata={**item.metadata, METADATA_KEY: {str(TRIED): tried, str(IDLE): NOTHING}})


def roll_out(config: RunConfig, items: Sequence[Item], console: Console) -> RunFolder:
    """One run: a task's two rollouts follow each other, on the only VM there is.

    Raises:
        UserError: This machine cannot do it, or the run was interrupted.
    """
    items, _ = preflight.check_items(config, items)
    benchmark = replace(load_items(str(config.data.path)), items=tuple(items))
    pairs = [rollout_id_of(item.id, index) for item in items for index in (TRIED, IDLE)]
    submission = replace(new_submission(config, benchmark), todo=pairs)
    console.print(f"{len(items)} tasks, two rollouts each; folder {submission.folder.path}", soft_wrap=True)
    if run_embedded(submission, console).interrupted:
        raise UserError(f"interrupted; go on with: python scripts/submit.py --resume {submission.folder.path}")
    return submission.folder


def rows_of(folder: RunFolder, unsolved: Mapping[str, str]) -> list[Row]:
    """Returns what a run's results say, task by task."""
    items = folder.description.items()
    verdicts = {
        (item.id, index): verdict
        for item in items
        for index in (TRIED, IDLE)
        if (verdict := folder.verdict(rollout_id_of(item.id, index)))
    }
    held = sorted(
        (verdict.lease.vm_id, verdict.lease.allocated, key) for key, verdict in verdicts.items() if verdict.lease
    )
    followers = {(one[2], other[2]) for one, other in pairwise(held) if one[0] == other[0]}
    return [_row(item, verdicts, ((item.id, TRIED), (item.id, IDLE)) in followers, unsolved) for item in items]


def _row(item: Item, verdicts: Mapping[tuple[str, int], Verdict], same_vm: bool, unsolved: Mapping[str, str]) -> Row:
    first, second = verdicts.get((item.id, TRIED)), verdicts.get((item.id, IDLE))
    scripted = item.metadata[METADATA_KEY][str(TRIED)] != NOTHING
    lease = first.lease if first else None
    reasons = [unsolved.get(item.id, ""), first.error if first and first.status != "completed" else ""]
    return Row(
        domain=item.domain or "",
        task=item.id,
        instruction=" ".join(item.question.split()),
        tried="FAIL" if is_infeasible(item) else "script" if scripted else "nothing",
        score=first.score if first else None,
        idle_score=second.score if second else None,
        same_vm=same_vm,
        turns=first.turns if first else 0,
        seconds=lease.released - lease.allocated if lease else 0.0,
        why=": ".join(reason for reason in reasons if reason),
    )


def page(rows: Sequence[Row], others: Iterable[Item], listed: str, full_list: str) -> str:
    """Returns the results, and what the rest of the tasks would need, in Markdown."""
    rest = [row for row in rows if row.why or row.tried == "nothing"]
    solved = [row for row in rows if row.tried == "script" and row not in rest]
    infeasible = [row for row in rows if row.tried == "FAIL" and row not in rest]
    lines = [
        "# OSWorld's own tasks on local desktops",
        "",
        f"`{listed}` lists those whose setup and evaluator name no URL. They are rolled out unchanged in the image `full` of",
        "the provider `local`, twice each: by a script that solves the task with mouse and keys, or by FAIL where it is",
        "infeasible; then by doing nothing, on the same VM right after. The scripts are in `tests/acceptance/osworld_scripts`.",
        "Made by:",
        "",
        "<!-- not run: it needs OSWorld's task files -->",
        "```bash",
        f"python scripts/bench/osworld_tasks.py run --data-path osworld/{listed} --run-id offline",
        f"python scripts/bench/osworld_tasks.py page offline --data-path osworld/{full_list} > docs/osworld-offline.md",
        "```",
        "",
        f"{_right(solved)} of {len(solved)} scripts score 1, and doing nothing after them 0;"
        f" {_right(infeasible)} of {len(infeasible)} infeasible tasks score 1 on FAIL, and 0 otherwise."
        f" The other {len(rest)} cannot be solved in that image, and say why. Seconds are those for which the rollout had the VM.",
        "",
        "| domain | task | instruction | by | score | doing nothing | turns | seconds |",
        "|---|---|---|---|---:|---:|---:|---:|",
    ]
    for row in [*solved, *infeasible]:
        told = (row.domain, f"`{row.task[:8]}`", _cut(row.instruction), row.tried, _score(row.score))
        lines.append(f"| {' | '.join(told)} | {_score(row.idle_score)} | {row.turns} | {row.seconds:.0f} |")
    lines += ["", "| domain | task | instruction | doing nothing | why there is no script |", "|---|---|---|---:|---|"]
    for row in rest:
        told = (row.domain, f"`{row.task[:8]}`", _cut(row.instruction), _score(row.idle_score), _cell(row.why))
        lines.append(f"| {' | '.join(told)} |")
    needed = [needs_of(task_config(item), item) for item in others]
    lines += ["", f"The other {len(needed)} tasks of `{full_list}` are valid, and need this (numbers are tasks):", ""]
    lines += ["| what | how much |", "|---|---|"]
    for kind, value in total(needed).items():
        shown = ", ".join(f"{name} {count}" for name, count in value.items()) if isinstance(value, dict) else str(value)
        lines.append(f"| {_NEED_LABELS.get(kind, kind)} | {shown} |")
    return "\n".join(lines) + "\n"


_NEED_LABELS = {
    "programs": "programs in the guest",
    "downloads": "files to download (`rollouts prefetch`)",
    "packages": "Python packages besides",
    "internet": "the internet in the guest",
    "proxy": "a proxy",
    "fixed_ip": "a fixed address",
}


def _right(rows: Iterable[Row]) -> int:
    return sum(row.score == 1 and row.idle_score == 0 and row.same_vm for row in rows)


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:g}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _cut(text: str) -> str:
    text = _cell(text)
    return text if len(text) <= INSTRUCTION_CHARACTERS else text[: INSTRUCTION_CHARACTERS - 3].rstrip() + "..."


_application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
_Scripts = Annotated[Path, typer.Option(help=f"Folder with <task id>.json and {UNSOLVED}.")]
_Output = Annotated[Path, typer.Option(help="Where runs' folders go.")]


@_application.command()
def run(
    data_path: Annotated[Path, typer.Option(help="A list of tasks of an OSWorld tree, as test_all.json is one.")],
    scripts: _Scripts = SCRIPTS,
    domain: Annotated[list[str] | None, typer.Option(help="Only tasks of this domain; repeatable.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only the task whose id begins so; repeatable.")] = None,
    provider: Annotated[str, typer.Option(help="Where the VM comes from.")] = "local",
    provider_option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Default: profile=full.")
    ] = None,
    output_dir: _Output = Path("results"),
    run_id: Annotated[str | None, typer.Option(help="The run's name.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what came of each task as JSON.")] = False,
) -> None:
    """Rolls tasks out, each by its script and by doing nothing.

    For example:  [bold]osworld_tasks.py run --data-path osworld/test_offline.json --domain chrome --domain os[/bold]
    """
    items = [
        with_script(item, scripts)
        for item in load_items(data_path)
        if (not domain or item.domain in domain) and (not task or item.id.startswith(tuple(task)))
    ]
    if not items:
        raise UserError(f"--domain, --task: {data_path} has no such task")
    config = parse_config(
        {
            "data": {"path": str(data_path)},
            "model": {"scripted": True},
            "vm": {
                "num_vms": 1,
                "provider_name": provider,
                "provider_options": key_values("--provider-option", provider_option or ["profile=full"]),
            },
            "desktop": {"sleep_after_execution": 0.5, "observation_type": "a11y_tree", "enable_recording": False},
            "num_rollouts": 1,
            "rollouts_per_item": 2,
            "max_attempts": 1,
            "output_dir": str(output_dir),
            "run_id": run_id or time.strftime("osworld-%Y%m%d-%H%M%S"),
        }
    )
    preflight.check_here(config, items, {"osworld"})
    rows = rows_of(roll_out(config, items, Console(stderr=True, highlight=False)), _unsolved(scripts))
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    for row in rows:
        print(
            f"{row.domain:20s} {row.task[:8]}  {row.tried:8s}{_score(row.score):>4s}"
            f"{_score(row.idle_score):>4s}{row.turns:4d} {row.seconds:4.0f} s  {row.why}"
        )


@_application.command("page")
def print_page(
    finished: Annotated[str, typer.Argument(metavar="RUN", help="A finished run's id or folder.")],
    data_path: Annotated[Path, typer.Option(help="The list of all tasks, to say what the others need.")],
    scripts: _Scripts = SCRIPTS,
    output_dir: _Output = Path("results"),
) -> None:
    """Prints a finished run as a page in Markdown."""
    folder = find_run(finished, output_dir)
    rows = rows_of(folder, _unsolved(scripts))
    ran = {row.task for row in rows}
    others = [item for item in load_items(data_path) if item.id not in ran]
    print(page(rows, others, Path(folder.description.document()["benchmark"]["path"]).name, data_path.name), end="")


def _unsolved(scripts: Path) -> dict[str, str]:
    path = scripts / UNSOLVED
    return dict(read_json(path, "reasons")) if path.is_file() else {}


if __name__ == "__main__":
    program.run(_application)
