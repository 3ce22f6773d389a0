"""What is taken from others: the lock files' licences, bills of materials and known vulnerabilities, and the base images."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rollout_tasks.cli import program
from rollout_tasks.errors import UserError
from tools.supply_chain.base_images import COMPOSE, base_images
from tools.supply_chain.bill_of_materials import bill_of_materials
from tools.supply_chain.facts import UNREAD, gather, read_facts, write_facts
from tools.supply_chain.licences_page import PAGE, render
from tools.supply_chain.locks import INSTALLER_LOCK, LOCKS, read_lock, rows
from tools.supply_chain.vulnerabilities import ACCEPTED, Audit, Judgement, NotCheckedError, ask, judge, read_accepted

REPOSITORY = Path(__file__).resolve().parents[2]

application = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    no_args_is_help=True,
    help="What the lock files bring with them: under which licences, in which bill of materials, with which known vulnerabilities."
    " And whether containers start from pinned images.",
)
console = Console(stderr=True, highlight=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@application.command()
def licences(
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="Read the licences anew and write docs/licences.md; after a lock file has changed."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List every locked package: version, licence, the locks that have it, the direct dependencies that bring it.

    A licence is an SPDX expression where the package's metadata tells it; else it is marked as unclear. As in:

    [bold]supply.py licences --json | jq '.\\[] | select(.spdx == "")'[/bold]

    [bold]--write[/bold] reads the installed packages, and asks the package index about versions for other interpreters and systems.
    Ends with 1 when docs/licences.md is not as the locks want it.
    """
    if write:
        write_facts(gather(rows(REPOSITORY), read_facts()))
        (REPOSITORY / PAGE).write_text(render(REPOSITORY), "utf-8")
    facts = read_facts()
    listed = [(row, facts.get((row.name, row.version), UNREAD)) for row in rows(REPOSITORY)]
    if as_json:
        program.print_json([asdict(row) | asdict(fact) for row, fact in listed])
    else:
        table = Table("package", "version", "licence", "locks", "brought by")
        for row, fact in listed:
            bringers = ["itself"] * row.direct + list(row.brought_by)
            table.add_row(row.name, row.version, str(fact.licence), ", ".join(row.locks), ", ".join(bringers))
        Console(width=None if sys.stdout.isatty() else 200).print(table)
    page = REPOSITORY / PAGE
    if not page.is_file() or page.read_text("utf-8") != render(REPOSITORY):
        console.print(f"[red]{PAGE} is outdated:[/red] python scripts/supply.py licences --write")
        raise typer.Exit(1)


@application.command()
def sbom(
    output: Annotated[Path, typer.Option(help="The folder to write into.")] = Path("build/sbom"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the paths as JSON.")] = False,
) -> None:
    """Write a bill of materials for each lock file: CycloneDX 1.6, JSON, checked against its schema.

    Each locked version is in it, with its licence, the hashes of its files and what it needs. As in:

    [bold]supply.py sbom --output dist[/bold]
    """
    facts = read_facts()
    paths = {file_name: output / f"{Path(file_name).stem}.cdx.json" for file_name in LOCKS.values()}
    try:
        output.mkdir(parents=True, exist_ok=True)
        for file_name, path in paths.items():
            path.write_text(bill_of_materials(REPOSITORY, file_name, facts), "utf-8")
    except OSError as error:
        raise UserError(f"--output: {output} cannot be written to: {error.strerror}") from error
    if as_json:
        program.print_json({name: str(path) for name, path in paths.items()})
    else:
        for path in paths.values():
            print(path)


@application.command()
def audit(as_json: AsJson = False) -> None:
    """Ask the package index which locked versions have known vulnerabilities.

    It asks with pip-audit about each version in the lock files, for whatever interpreter or system it is. What is named, with a
    reason, in tools/supply_chain/accepted_vulnerabilities.toml is let pass; an entry that no locked version has is not. As in:

    [bold]supply.py audit --json | jq .refused[/bold]

    Ends with 0 when all is well, and, with a message, when the index cannot be asked; with 1 when something is to be done.
    """
    accepted = read_accepted()
    locked = [(row.name, row.version) for row in rows(REPOSITORY)]
    locked += [(package.name, package.version) for package in read_lock(REPOSITORY / INSTALLER_LOCK)]
    names = [name for name, _ in locked]
    try:
        answered, not_checked = ask(locked), ""
    except NotCheckedError as reason:
        # What the file alone can be wrong about is found all the same.
        answered, not_checked = Audit(), str(reason)
        console.print(f"[yellow]known vulnerabilities were not checked:[/yellow] {escape(not_checked)}", soft_wrap=True)
    judgement = judge(answered, accepted, names)
    if as_json:
        coverage = {"not_checked": not_checked, "asked": sorted(answered.checked_packages), "unknown": answered.unknown}
        program.print_json(asdict(judgement) | coverage)
    else:
        _say(answered, judgement, len(locked))
    raise typer.Exit(1 if judgement else 0)


@application.command()
def images(as_json: AsJson = False) -> None:
    """List the images that docker-compose.yml takes from a registry; before a release, all must be pinned.

    A tag can come to mean another image; a digest cannot. BASE_IMAGE and BROKER_IMAGE, in .env or the environment, name them:

    [bold]BROKER_IMAGE=valkey/valkey:8@sha256:... supply.py images[/bold]

    Ends with 1 when one is named without a digest.
    """
    found = base_images(REPOSITORY, os.environ)
    if as_json:
        program.print_json([asdict(one) | {"pinned": one.pinned} for one in found])
    else:
        table = Table("variable", "image", "pinned")
        for one in found:
            table.add_row(one.variable, one.image, "yes" if one.pinned else "no")
        Console(width=None if sys.stdout.isatty() else 200).print(table)
    if not all(one.pinned for one in found):
        console.print(
            f"[red]{COMPOSE} takes images without a digest:[/red] NAME:TAG@sha256:DIGEST is what the variables want"
        )
        raise typer.Exit(1)


def _say(answered: Audit, judgement: Judgement, locked: int) -> None:
    if judgement.refused:
        table = Table("package", "version", "known as", "fixed in", "what")
        for one in judgement.refused:
            known_as = ", ".join((one.id, *one.aliases))
            table.add_row(
                one.package, one.version, known_as, ", ".join(one.fixed_in) or "nothing yet", one.description[:200]
            )
        Console(width=None if sys.stdout.isatty() else 200).print(table)
        print(f"Take a fixed version into the lock files (pyproject.toml says how), or say in {ACCEPTED.name} why not.")
    for entry in judgement.stale:
        print(f"{ACCEPTED.name}: {entry.id} of {entry.package} is stale: no locked version has it")
    for name, why in sorted(answered.unknown.items()):
        console.print(f"[yellow]{name} was not checked:[/yellow] {escape(why)}")
    if answered.checked_packages and not judgement:
        accepted = (
            f"{len(answered.found)} known vulnerabilities, accepted" if answered.found else "no known vulnerability"
        )
        print(f"{locked} locked versions: {accepted}")


def main() -> None:
    """Runs the command."""
    program.run(application)
