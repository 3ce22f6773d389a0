"""Makes the docs page that lists every command and option, from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rollout_tasks.cli.main import SUBCOMMANDS, load

_MARKUP = re.compile(r"\[/?(?:bold|dim|green|yellow|red)\]")


def commands_page() -> str:
    """Returns the page in Markdown."""
    parts = ["# Commands", "Every command takes `--help` (`-h`). Options may be spelt with `_` for `-`, too."]
    for name in SUBCOMMANDS:
        parts += _section(load(name), f"rollouts {name}", "##")
    return "\n\n".join(parts) + "\n"


def _section(command: Any, name: str, heading: str) -> Iterator[str]:
    yield f"{heading} {name}"
    yield _plain(command.help or "")
    below = getattr(command, "commands", {})
    rows = [row for row in map(_row, command.params) if row]
    if rows and not below:
        yield "\n".join(["| option | what it does |", "|---|---|", *rows])
    for title, one in below.items():
        yield from _section(one, f"{name} {title}", heading + "#")


def _row(option: Any) -> str:
    spellings = [*option.opts, *getattr(option, "secondary_opts", ())]
    if getattr(option, "hidden", False) or "--help" in spellings:
        return ""
    is_option = spellings[0].startswith("-")
    names = ", ".join(f"`{spelling}`" for spelling in spellings) if is_option else f"`{option.metavar or option.name}`"
    said = " ".join(_plain(getattr(option, "help", "") or "").split()).replace("|", "\\|")
    return f"| {names} | {said} |"


def _plain(text: str) -> str:
    """Returns help as Markdown; a line that is bold is an example."""
    lines = [re.sub(r"^\s*\[bold\](.*)\[/bold\]\s*$", r"    \1", line) for line in text.splitlines()]
    return _MARKUP.sub("", "\n".join(lines)).strip()
