"""`rollouts image`: builds and lists the guest images that local desktops and QEMU machines are made of."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from desktop_image import (
    PROFILES,
    CachedImage,
    GuestBuildError,
    Image,
    ProgressCallback,
    Release,
    define,
    disk_of,
    image_named,
    list_images,
    prune,
    remove_image,
    root_of,
    size_of,
)
from rollout_tasks.cli import program
from rollout_tasks.cli.fitting_tables import table_console
from rollout_tasks.cli.image_check import check_tasks
from rollout_tasks.cli.image_progress import image_progress
from rollout_tasks.environments.osworld.conformance import image_facts
from rollout_tasks.errors import UserError

_TAKES: Mapping[str, Sequence[str]] = {
    "--check": ("--profile", "--provider", "--provider-option", "--page", "--json"),
    "--list": ("--json",),
    "--prune": ("--json",),
    "--remove": ("--json",),
}
"""What is done instead of building, and the other options that it takes."""
_OF_CHECK = frozenset({"--provider", "--provider-option", "--page"})


def _path(text: str) -> Path:
    if not text:  # such as that of a variable that is not set; an empty path would mean the current folder
        raise typer.BadParameter("its value is empty")
    return Path(text)


application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")


@application.command(
    epilog="core: terminal, editor, calculator, file manager, Python. office: LibreOffice. media: GIMP, VLC. browser:"
    " Chromium. full: all of these and more. gnome: full with GNOME Shell. Needs mmdebstrap and, but for a disk, root; an image"
    " that exists is not built again. Scripts of --run see the network as this machine does, its own services included, and"
    " none of its files."
)
def build(
    context: typer.Context,
    profile: Annotated[
        str, typer.Option("--profile", help=f"One of {', '.join(PROFILES)}, or an image of your own.")
    ] = "core",
    name: Annotated[
        str,
        typer.Option("--name", help="The name of an image of your own: the profile, and what the next options add."),
    ] = "",
    package: Annotated[
        list[str] | None,
        typer.Option("--package", metavar="NAME|FILE.deb", help="With --name: a package to add; repeatable."),
    ] = None,
    font: Annotated[
        list[Path] | None,
        typer.Option("--font", parser=_path, metavar="DIR", help="With --name: a folder of fonts to add; repeatable."),
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            "--run",
            parser=_path,
            metavar="SCRIPT",
            help="With --name: a script that is run in the image, as its root, after all else; repeatable.",
        ),
    ] = None,
    suite: Annotated[
        str, typer.Option("--suite", help=f"With --name: another release than {Release().suite}, such as trixie.")
    ] = Release().suite,
    mirror: Annotated[
        str,
        typer.Option(
            "--mirror",
            metavar="URL [COMPONENT...]",
            help="With --name: the archive that has the release; default: where this machine gets Debian from.",
        ),
    ] = "",
    keyring: Annotated[
        Path | None,
        typer.Option(
            "--keyring", parser=_path, metavar="FILE", help="With --name: the keys that the archive is signed with."
        ),
    ] = None,
    disk: Annotated[
        bool,
        typer.Option("--disk", help="Build the disk that the provider qemu boots; users who are not root can, too."),
    ] = False,
    show_built: Annotated[
        bool, typer.Option("--list", help="List the images that are there, and build nothing.")
    ] = False,
    prune_outdated: Annotated[
        bool, typer.Option("--prune", help="Remove what is outdated and not in use, and build nothing.")
    ] = False,
    remove: Annotated[
        str,
        typer.Option(
            "--remove", metavar="NAME", help="Remove an image of your own, with all parts that no other image has."
        ),
    ] = "",
    check: Annotated[
        Path | None,
        typer.Option(
            "--check",
            parser=_path,
            metavar="TASKS",
            help="Say for each task of an OSWorld tree whether its score can be relied on in the image, and if not, why.",
        ),
    ] = None,
    provider: Annotated[str, typer.Option(help="With --check: the provider of the VM that is examined.")] = "local",
    provider_option: Annotated[
        list[str] | None,
        typer.Option(
            "--provider-option", "-o", metavar="KEY=VALUE", help="With --check: one of its options; repeatable."
        ),
    ] = None,
    as_page: Annotated[bool, typer.Option("--page", help="With --check: print a page in Markdown.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of sentences and tables.")] = False,
) -> None:
    """Build a guest image into the cache, find out what it has, and say where it is and how large.

    For example:  [bold]sudo .venv/bin/rollouts image build --profile full[/bold]

    or, then:     [bold]sudo .venv/bin/rollouts image build --profile full --check osworld/test_all.json[/bold]

    or your own:  [bold]sudo .venv/bin/rollouts image build --profile full --name mine --package inkscape[/bold]
    """
    given = _given(context)
    _refuse_ignored(given)
    names = {"--name": name, "--remove": remove, "--suite": suite}
    if empty := [option for option, value in names.items() if option in given and not value]:
        raise UserError(f"{empty[0]}: its value is empty")
    release = Release(suite, mirror.strip(), keyring)
    added = {"--package": package, "--font": font, "--run": run, "--suite, --mirror or --keyring": release != Release()}
    added_options = [option for option, value in added.items() if value]
    if added_options and not name:
        raise UserError(f"{added_options[0]}: --name is missing: what is your own image called?")
    if check is not None:
        check_tasks(check, profile, provider, provider_option or [], as_page=as_page, as_json=as_json)
        return
    if show_built:
        _show(list_images(), as_json)
        return
    try:
        if prune_outdated:
            with image_progress() as progress:
                removed, kept = prune(progress)
            _show_removed("outdated or unfinished parts of guest images", removed, kept, as_json)
        elif remove:
            with image_progress() as progress:
                removed, kept = remove_image(remove, progress)
            _show_removed(f"parts of the guest image {remove}", removed, kept, as_json)
        elif name:
            definition = define(name, profile, release, packages=package or [], fonts=font or [], scripts=run or [])
            _build(definition, disk, as_json)
        else:
            _build(nullcontext(image_named(profile)), disk, as_json)
    except GuestBuildError as error:
        raise UserError(str(error)) from error


def _given(context: typer.Context) -> list[str]:
    """Returns the options that were given, each in its first spelling, in the order of the help."""
    sources = ((option.opts[0], context.get_parameter_source(option.name or "")) for option in context.command.params)
    return [name for name, source in sources if source is not None and source.name == "COMMANDLINE"]


def _refuse_ignored(given: Sequence[str]) -> None:
    """Checks that no option was given that what is to be done has no use for.

    Raises:
        UserError: One was; names it, and what would ignore it.
    """
    action = next((name for name in _TAKES if name in given), None)
    if action is None:
        if needless := [name for name in given if name in _OF_CHECK]:
            raise UserError(f"{needless[0]}: it is for --check, which is missing")
        return
    *others, last = _TAKES[action]
    if ignored := [name for name in given if name not in (action, *others, last)]:
        takes = f"{', '.join(others)} and {last}" if others else last
        raise UserError(f"{ignored[0]}: {action} ignores it; it takes only {takes}")
    if "--page" in given and "--json" in given:
        raise UserError("--page, --json: only one of them can be printed")


def _build(wanted: AbstractContextManager[Image], disk: bool, as_json: bool) -> None:
    """Builds an image, which may exist under its name only afterwards, or its disk; finds out what it has; shows it."""
    began = time.monotonic()
    with image_progress() as progress:
        with wanted as image:
            built = _built(image, disk, progress)
        if not disk:
            _look_at(image.name, progress)
    built["seconds"] = round(time.monotonic() - began, 1)
    if as_json:
        program.print_json(built)
        return
    what, where = ("Disk of guest image", built["disk"]) if disk else ("Guest image", built["layers"][-1])
    typer.echo(f"{what} {image.name}: {_gigabytes(built['bytes'])}, ready after {built['seconds']:.0f} s, in {where}")
    if image.name != image.profile:
        typer.echo(f"Its desktops: --provider-option profile={image.name}")


def _built(image: Image, disk: bool, progress: ProgressCallback) -> dict[str, Any]:
    """Builds the image, or its disk; returns its description, as --json prints it."""
    about = {"image": image.name, "profile": image.profile, "suite": image.release.suite}
    if disk:
        made = disk_of(image, progress)
        size = made.image.stat().st_blocks * 512
        return {**about, "digest": made.digest, "disk": str(made.image), "bytes": size}
    root = root_of(image, progress)
    layers = [str(layer) for layer in root.layers]
    return {**about, "digest": root.digest, "layers": layers, "bytes": sum(map(size_of, root.layers))}


def _look_at(profile: str, progress: ProgressCallback) -> None:
    """Finds out what the image has, so that a submission can tell which tasks it cannot serve."""
    try:
        image_facts("local", {"profile": profile}, progress)
    except UserError as error:
        program.tell(f"note: what the image has could not be found out here: {error}")


def _as_json(part: CachedImage) -> dict[str, Any]:
    return {**asdict(part), "folder": str(part.folder)}


def _show(parts: list[CachedImage], as_json: bool) -> None:
    if as_json:
        program.print_json([_as_json(part) for part in parts])
        return
    if not parts:
        typer.echo("No guest image has been built yet: rollouts image build --profile core")
        return
    table = Table()
    for heading in ("kind", "image", "size", "", "folder"):
        table.add_column(heading, overflow="fold")
    for part in parts:
        remark = "" if part.current else "outdated"
        table.add_row(part.kind, part.image, _gigabytes(part.bytes), remark, str(part.folder))
    table_console(markup=False).print(table)
    outdated = sum(part.bytes for part in parts if not part.current)
    if outdated:
        typer.echo(f"Outdated: {_gigabytes(outdated)}; rollouts image build --prune removes what is not in use.")


def _show_removed(what: str, removed: list[CachedImage], kept: list[CachedImage], as_json: bool) -> None:
    if as_json:
        program.print_json({"removed": list(map(_as_json, removed)), "in_use": list(map(_as_json, kept))})
        return
    size = _gigabytes(sum(part.bytes for part in removed))
    typer.echo(f"Removed {len(removed)} {what}: {size}")
    for part in kept:
        typer.echo(f"In use, so still there: {part.folder}")


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"


group = typer.Typer(add_completion=False, no_args_is_help=True)


@group.callback()
def image() -> None:
    """Build the image that desktops are made of, and see which there are."""


group.command("build")(build)


def main() -> None:
    """Runs the command."""
    program.run(application)
