"""`rollouts index`: keeps an index of rollouts for trainers, and shows which groups they can learn from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from rollout_tasks.cli import program
from rollout_tasks.cli.export import REASONS, report_of
from rollout_tasks.cli.fitting_tables import Column, FittingTable, table_console
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import find_run

if TYPE_CHECKING:
    from rollout_tasks.training.index import Index

application = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Keep an index of rollouts for trainers.

    Add scored runs, then let trainers claim groups in Python:

    [bold]rollouts index add RUN[/bold]
    [bold]rollouts index groups[/bold]

    The index is a file of SQLite. For trainers on several machines, let it be in
    PostgreSQL, MariaDB or MySQL:

    [bold]export ROLLOUT_INDEX_URL=postgresql://USER:PASSWORD@HOST/NAME[/bold]
    """,
)

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Where the index is; without a password. Default: ROLLOUT_INDEX_URL, else the file results/index.sqlite.",
    ),
]
SeedSchema = Annotated[
    bool, typer.Option("--seed-schema", help="Write the tables of the older system, too, for programs that read them.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables and sentences.")]
_TEXT_WIDTH = 40


@application.command(context_settings=program.any_spelling())
def add(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or the path of its folder.")],
    metric: Annotated[
        str | None, typer.Option(help="Take the scores of the report with this metric. Default: the run's own.")
    ] = None,
    output_dir: Annotated[Path, typer.Option(help="Where runs' folders are.")] = Path("results"),
    url: Url = None,
    seed_schema: SeedSchema = False,
    as_json: AsJson = False,
) -> None:
    """Add a scored run's rollouts.

    Add a run again after a resume or another scoring: only what is new or
    scored otherwise changes, and what trainers have taken stays taken. Traces
    stay in the run's folder, which trainers must see at the same path. Rollouts
    lost to infrastructure failures get no reward and are in no group.
    """
    folder = find_run(run, output_dir)
    report = report_of(folder, metric)
    added = _open(url, seed_schema=seed_schema, makes=True).add(folder.path, report=report)
    if as_json:
        program.print_json(dataclasses.asdict(added))
        return
    typer.echo(f"{added.run_id}: {added.new:,} new, {added.changed:,} changed, {added.unchanged:,} unchanged")
    for reason, count in added.left_out.items():
        program.tell(f"left out: {count:,} rollout{'s' if count > 1 else ''} {REASONS.get(reason, reason)}")
    if added.problem:
        program.tell(f"the first problem was: {added.problem}")


@application.command(context_settings=program.any_spelling())
def groups(
    size: Annotated[int, typer.Option(help="Rollouts of a group: the newest unused ones of an item.")] = 8,
    versions: Annotated[int, typer.Option(help="Of how many versions of the model, the newest.")] = 2,
    staleness: Annotated[
        int | None, typer.Option(help="Instead: by how many steps a version may be older than the newest.")
    ] = None,
    pool: Annotated[
        bool, typer.Option("--pool/--no-pool", help="An older success joins a group that has no reward.")
    ] = True,
    most: Annotated[int, typer.Option(min=1, help="How many groups to show.")] = 64,
    url: Url = None,
    seed_schema: SeedSchema = False,
    as_json: AsJson = False,
) -> None:
    """Show the groups that a trainer would get now.

    A group is the newest unused rollouts of an item whose mean reward is below 1.
    With --seed-schema, the older system's table of groups is filled with them.
    """
    opened = _open(url, seed_schema=seed_schema)
    from rollout_tasks.training.index import Rule  # here, because SQLAlchemy is optional

    found = opened.groups(Rule(size, versions, staleness, pool), most=most)
    if as_json:
        program.print_json([dataclasses.asdict(one) | {"mean_reward": one.mean_reward} for one in found])
        return
    rows = [
        (
            one.item_id,
            str(len(one.rollouts)),
            f"{one.mean_reward:.3g}",
            ", ".join(dict.fromkeys(_version(rollout.version) for rollout in one.rollouts)),
            ", ".join(dict.fromkeys(rollout.run_id for rollout in one.rollouts)),
            "yes" if any(rollout.pooled for rollout in one.rollouts) else "",
        )
        for one in found
    ]
    columns = [
        Column("item", folds_to=_TEXT_WIDTH),
        Column("rollouts", right=True),
        Column("mean reward", right=True),
        Column("versions", folds_to=_TEXT_WIDTH, leaves=2),
        Column("runs", folds_to=_TEXT_WIDTH, leaves=1),
        Column("from the pool", leaves=3),
    ]
    _show(columns, rows, "no group is trainable now")


@application.command(context_settings=program.any_spelling())
def checkpoint(
    version: Annotated[
        str | None,
        typer.Argument(metavar="VERSION", help="As rollouts have it, such as the weight version of a model pool."),
    ] = None,
    step: Annotated[
        int | None, typer.Option(help="Its place in the order of versions. Default: after the newest.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What people call it.")] = None,
    path: Annotated[str | None, typer.Option(help="Where its weights are.")] = None,
    status: Annotated[str | None, typer.Option(help="A word of yours, such as served.")] = None,
    url: Url = None,
    seed_schema: SeedSchema = False,
    as_json: AsJson = False,
) -> None:
    """Register a version of the model, or show those that there are.

    [bold]rollouts index checkpoint step-200 --step 200 --path checkpoints/step-200[/bold]

    The order of versions says which rollouts are new enough. A version that
    nobody has registered gets its place when a rollout with it is first added.
    """
    opened = _open(url, seed_schema=seed_schema, makes=version is not None)
    if version is None:
        if any(value is not None for value in (step, name, path, status)):
            raise UserError("VERSION: is missing: what is given must be of a version")
        found = opened.checkpoints()
    else:
        found = [opened.checkpoint(version, step=step, name=name, path=path, status=status)]
    if as_json:
        program.print_json([dataclasses.asdict(one) for one in found])
        return
    columns = [
        Column("version", folds_to=_TEXT_WIDTH),
        Column("step", right=True),
        Column("status"),
        Column("name", leaves=2),
        Column("path", folds_to=_TEXT_WIDTH, leaves=3),
        Column("since (UTC)", leaves=1),
    ]
    rows = [
        (
            _version(one.version),
            "-" if one.step is None else str(one.step),
            one.status,
            one.name,
            one.path,
            _time(one.created),
        )
        for one in found
    ]
    _show(columns, rows, "the index has no version of a model")


@application.command()
def claims(url: Url = None, as_json: AsJson = False) -> None:
    """Show what trainers have taken, and when."""
    found = _open(url).claims()
    if as_json:
        program.print_json([dataclasses.asdict(one) for one in found])
        return
    columns = [
        Column("claim", right=True),
        Column("taken by", folds_to=_TEXT_WIDTH),
        Column("at (UTC)"),
        Column("groups", right=True),
        Column("rollouts", right=True),
    ]
    rows = [(str(one.id), one.by, _time(one.at), str(one.groups), str(one.rollouts)) for one in found]
    _show(columns, rows, "no trainer has taken a group")


@application.command("give-back")
def give_back(
    claim: Annotated[int, typer.Argument(metavar="CLAIM", help="Its number, as rollouts index claims shows it.")],
    url: Url = None,
    seed_schema: SeedSchema = False,
    as_json: AsJson = False,
) -> None:
    """Let others have what a trainer took that died."""
    count = _open(url, seed_schema=seed_schema).give_back(claim)
    if as_json:
        program.print_json({"claim": claim, "rollouts": count})
    else:
        typer.echo(f"claim {claim}: {count:,} rollouts can be taken again")


def _open(url: str | None, *, seed_schema: bool = False, makes: bool = False) -> Index:
    """Opens the index, or makes it.

    Raises:
        UserError: It cannot be opened, is not there, or its address has a password that others can see.
    """
    if url is not None and _has_password(url):
        raise UserError("--url: must not contain a password, which others could see: set ROLLOUT_INDEX_URL instead")
    from rollout_tasks.training.index import Index  # here, because SQLAlchemy is optional

    return Index(url, seed_schema=seed_schema, must_exist=not makes)


def _has_password(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.password is not None or "password" in parts.query.lower() or "passwd" in parts.query.lower()
    except ValueError:
        return True


def _version(version: str) -> str:
    return version or "unknown"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="minutes")[:16]


def _show(columns: Sequence[Column], rows: Sequence[Sequence[Any]], otherwise: str) -> None:
    if rows:
        table_console(highlight=False, markup=False).print(FittingTable(columns, rows))
    else:
        typer.echo(otherwise)


def main() -> None:
    """Runs the command."""
    program.run(application)


if __name__ == "__main__":
    main()
