"""OSWorld's own tasks with files made here instead of theirs, through the whole pipeline on desktops of this machine.

Each is played by a script that solves it, by doing nothing and by a near miss: these must score 1, 0 and 0. `draw` names tasks
that nothing stands in for yet: by those that come next, a conformance table is judged.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated
from urllib.parse import unquote, urlsplit

import typer
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmark.items import Item, load_items
from desktop_image.cache_folder import user_cache_folder
from rollout_tasks.cli import program
from rollout_tasks.cli.image_check import tasks_in
from rollout_tasks.config import parse_config
from rollout_tasks.embedded.run import run_embedded
from rollout_tasks.environments.osworld.conformance import conformance, image_facts
from rollout_tasks.environments.osworld.task import task_config
from rollout_tasks.environments.osworld.task_files import files_of
from rollout_tasks.errors import UserError
from rollout_tasks.models.scripted.scripts import METADATA_KEY
from rollout_tasks.runs.folder import RunFolder, find_run
from rollout_tasks.runs.submission import new_submission, resumed_submission
from rollout_tasks.runs.verdict import rollout_id_of
from scripts.bench.osworld_tasks import SCRIPTS, is_infeasible
from tests.acceptance.osworld_standins import StandIn, stand_ins

NOTHING = [
    {"text": "I do nothing.", "tool_calls": [{"name": "desktop_control", "arguments": {"action": "done"}}]},
]


@dataclass(frozen=True, slots=True)
class Row:
    """How one task went."""

    domain: str
    task: str
    instruction: str
    right: tuple[float | None, ...]
    """Scores of the script that solves it."""
    nothing: float | None
    """Score of doing nothing."""
    near_miss: float | None
    near_miss_is: str
    shell: bool
    """Whether it is solved in a terminal."""
    seconds: float
    """The first solution had the VM."""
    why: str
    """Why a rollout failed; empty when all was well."""

    @property
    def as_expected(self) -> bool:
        """Whether the scores are 1, 0 and 0."""
        return set(self.right) == {1.0} and self.nothing == 0 and self.near_miss == 0 and not self.why


def played(item: Item, there: StandIn, times: int) -> Item:
    """The item with what the scripted model plays: the solution so many times, then nothing, then the near miss.

    Nothing is done once that is seen for which the solution waits first: evaluators press keys in a window that opens late.
    """
    seen = {"when": there.right[0]["when"]} if "when" in there.right[0] else {}
    scripts = [*([there.right] * times), [one | seen for one in NOTHING], there.near_miss]
    return replace(
        item, metadata={**item.metadata, METADATA_KEY: {str(index): one for index, one in enumerate(scripts)}}
    )


def files_by_url(item: Item, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns what stands in for each of a task's URLs.

    Raises:
        UserError: There is nothing for one, or for none of that name.
    """
    names = {file.url: unquote(PurePosixPath(urlsplit(file.url).path).name) for file in files_of(task_config(item))}
    if missing := sorted(set(names.values()) - set(files)):
        raise UserError(f"the stand-in of {item.id} has no {missing[0]}")
    if beyond := sorted(set(files) - set(names.values())):
        raise UserError(f"the stand-in of {item.id} has {beyond[0]}, for which the task does not ask")
    return {url: files[name] for url, name in names.items()}


@contextmanager
def downloads_of(files: Mapping[str, bytes]) -> Iterator[None]:
    """A cache in which these files are downloaded already, beside the guest images that there are."""
    real = user_cache_folder()
    before = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory(prefix="standins-") as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        try:
            mine = user_cache_folder()
            mine.mkdir(parents=True)
            (mine / "guest").symlink_to(real / "guest")
            for name in ("objects", "urls"):
                (mine / "downloads" / name).mkdir(parents=True)
            for url, content in files.items():
                digest = hashlib.sha256(content).hexdigest()
                (mine / "downloads" / "objects" / digest).write_bytes(content)
                entry = {"url": url, "sha256": digest, "size": len(content), "at": 0}
                key = hashlib.sha256(url.encode()).hexdigest()
                (mine / "downloads" / "urls" / f"{key}.json").write_text(json.dumps(entry), encoding="utf-8")
            yield
        finally:
            if before is None:
                del os.environ["XDG_CACHE_HOME"]
            else:
                os.environ["XDG_CACHE_HOME"] = before


def rows_of(folder: RunFolder, known: Mapping[str, StandIn], times: int) -> list[Row]:
    """Returns what a run's results say, task by task."""
    rows = []
    for item in folder.description.items():
        verdicts = [folder.verdict(rollout_id_of(item.id, index)) for index in range(times + 2)]
        scores = [one.score if one else None for one in verdicts]
        lease = verdicts[0].lease if verdicts[0] else None
        why = [one.error for one in verdicts if one and one.status != "completed"]
        there = known[item.id]
        rows.append(
            Row(
                domain=item.domain or "",
                task=item.id,
                instruction=" ".join(item.question.split()),
                right=tuple(scores[:times]),
                nothing=scores[times],
                near_miss=scores[times + 1],
                near_miss_is=there.near_miss_is,
                shell=there.shell,
                seconds=lease.released - lease.allocated if lease else 0.0,
                why="; ".join(dict.fromkeys(why)),
            )
        )
    return rows


_application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
_Data = Annotated[Path, typer.Option(help="A list of tasks of an OSWorld tree, as test_all.json is one.")]
_Profile = Annotated[str, typer.Option(help="The guest image.")]
_Output = Annotated[Path, typer.Option(help="Where runs' folders go.")]


@_application.command()
def run(
    data_path: _Data,
    task: Annotated[list[str] | None, typer.Option(help="Only the task whose id begins so; repeatable.")] = None,
    times: Annotated[int, typer.Option(min=1, help="How often each is solved.")] = 1,
    num_vms: Annotated[int, typer.Option(min=1, help="Desktops at a time.")] = 1,
    profile: _Profile = "full",
    output_dir: _Output = Path("results"),
    run_id: Annotated[str | None, typer.Option(help="The run's name.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what came of each task as JSON.")] = False,
) -> int:
    """Rolls tasks out, each solved, left alone and missed narrowly. A run that is there already is resumed.

    For example:  [bold]osworld_standins.py run --data-path osworld/test_all.json --task d16c99dc[/bold]
    """
    known = {one.task: one for one in stand_ins(task or [])}
    items = [played(item, known[item.id], times) for item in load_items(data_path) if item.id in known]
    if not items:
        raise UserError(f"--task: nothing stands in for such a task of {data_path}")
    files: dict[str, bytes] = {}
    for item in items:
        files |= files_by_url(item, known[item.id].files)
    config = parse_config(
        {
            "data": {"path": str(data_path)},
            "model": {"scripted": True},
            "vm": {"num_vms": num_vms, "provider_name": "local", "provider_options": {"profile": profile}},
            "desktop": {"sleep_after_execution": 0.5, "observation_type": "a11y_tree", "enable_recording": False},
            "num_rollouts": num_vms,
            "rollouts_per_item": times + 2,
            "max_attempts": 1,
            "limits": {"max_turns": 100, "max_seconds": 900},
            "output_dir": str(output_dir),
            "run_id": run_id or time.strftime(f"standins-%Y%m%d-%H%M%S-{os.getpid()}"),
        }
    )
    benchmark = replace(load_items(data_path), items=tuple(items))
    there = RunFolder(output_dir / config.run_id) if config.run_id else None
    submission = resumed_submission(there) if there and there.path.exists() else new_submission(config, benchmark)
    console = Console(stderr=True, highlight=False)
    console.print(f"{len(items)} tasks, {times + 2} rollouts each; folder {submission.folder.path}", soft_wrap=True)
    with downloads_of(files):
        if run_embedded(submission, console).interrupted:
            raise UserError("interrupted")
    return _show(rows_of(submission.folder, known, times), as_json)


@_application.command()
def draw(
    data_path: _Data,
    seed: Annotated[int, typer.Option(help="Another number, other tasks.")],
    count: Annotated[int, typer.Option(min=1, help="How many.")] = 20,
    profile: _Profile = "full",
) -> None:
    """Names tasks called faithful that neither stand-in nor script plays yet, chosen by the seed: write those, and play them.

    For example:  [bold]osworld_standins.py draw --data-path osworld/test_all.json --seed 1[/bold]
    """
    console = Console(stderr=True, highlight=False)
    tasks, _left_out = tasks_in(Path(data_path))
    facts = image_facts("local", {"profile": profile}, lambda sentence: console.print(sentence, soft_wrap=True))
    found = conformance(tasks, [facts])
    faithful = {one.item.id: one.item for one in found if one.verdict == "faithful" and not is_infeasible(one.item)}
    played_already = {one.task for one in stand_ins()} | {path.stem for path in SCRIPTS.glob("*.json")}
    for task in drawn(sorted(set(faithful) - played_already), seed, count):
        item = faithful[task]
        print(f"{item.domain:20s} {task}  {_cut(' '.join(item.question.split()))}")


def drawn(tasks: Iterable[str], seed: int, count: int) -> list[str]:
    """Returns that many of the tasks, in an order that only the seed decides, whatever is played later."""
    return sorted(tasks, key=lambda task: hashlib.sha256(f"{seed} {task}".encode()).digest())[:count]


@_application.command()
def page(
    finished: Annotated[list[str], typer.Argument(metavar="RUN ...", help="Finished runs' ids or folders.")],
    output_dir: _Output = Path("results"),
) -> None:
    """Prints finished runs as a page in Markdown; of a task that is in several, what came of it in the last."""
    known = {one.task: one for one in stand_ins()}
    rows: dict[str, Row] = {}
    for name in finished:
        folder = find_run(name, output_dir)
        times = folder.description.config().rollouts_per_item - 2
        rows |= {row.task: row for row in rows_of(folder, known, times)}
    print(_as_page(list(rows.values())), end="")


def _show(rows: Sequence[Row], as_json: bool) -> int:
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    for row in rows if not as_json else ():
        mark = "" if row.as_expected else "  <--"
        print(f"{row.domain:20s} {row.task[:8]}  {_scores(row)}  {row.seconds:4.0f} s  {row.why}{mark}")
    return int(not all(row.as_expected for row in rows))


def _scores(row: Row) -> str:
    return f"{' '.join(map(_score, row.right))} | {_score(row.nothing)} | {_score(row.near_miss)}"


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:g}"


def _as_page(rows: Sequence[Row]) -> str:
    lines = [
        "# OSWorld's own tasks with files made here",
        "",
        "Task files are OSWorld's, unchanged; what they download, and the references that their evaluators compare with,",
        "are made by `tests/acceptance/osworld_standins`. Each is played in the image `full` of the provider `local` by a script",
        "that solves it in the program's own windows or, as the column says, in a shell; by doing nothing; and by a near miss.",
        "Made by:",
        "",
        "<!-- not run: it needs OSWorld's task files -->",
        "```bash",
        "python scripts/bench/osworld_standins.py run --data-path osworld/test_all.json --run-id standins",
        "python scripts/bench/osworld_standins.py page standins > docs/osworld-standins.md",
        "```",
        "",
        f"{sum(row.as_expected for row in rows)} of {len(rows)} tasks score as they should: solved 1, left alone 0, missed 0.",
        "",
        "| domain | task | instruction | in | solved | left alone | near miss | which is | seconds |",
        "|---|---|---|---|---:|---:|---:|---|---:|",
    ]
    for row in sorted(rows, key=lambda row: (row.domain, row.task)):
        words = [row.domain, f"`{row.task[:8]}`", _cut(row.instruction), "a shell" if row.shell else "its windows"]
        words.append(" ".join(map(_score, row.right)))
        words += [_score(row.nothing), _score(row.near_miss), _cut(row.near_miss_is), f"{row.seconds:.0f}"]
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines) + "\n"


def _cut(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= 90 else text[:87].rstrip() + "..."


if __name__ == "__main__":
    program.run(_application)
