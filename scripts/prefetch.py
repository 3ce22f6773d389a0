"""Downloads the files that OSWorld tasks need, ahead of a run. Start with: prefetch.py --help"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rollout_tasks import command_line
from rollout_tasks.environments.osworld.prefetch import prefetch

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")


@application.command()
def main(
    data_path: Annotated[Path, typer.Option("--data-path", "--data", help="Benchmark file or OSWorld tree.")],
    at_a_time: Annotated[int, typer.Option("--at-a-time", min=1, max=32, help="Downloads at a time.")] = 4,
    skip_invalid: Annotated[bool, typer.Option("--skip-invalid", help="Leave out items that are wrong.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of sentences.")] = False,
) -> int:
    """Download what tasks need into this machine's cache, so that no rollout waits for it.

    Files come to `$XDG_CACHE_HOME/computer-use-rollouts/downloads` (default: ~/.cache), where the workers of this machine
    look first. What is there already is not downloaded again; what broke off goes on.

    For example:  [bold]prefetch.py --data-path osworld/[/bold]

    Exit code 1: some files could not be had; they are named with the reason.
    """
    return prefetch(data_path, at_a_time=at_a_time, skip_invalid=skip_invalid, as_json=as_json)


if __name__ == "__main__":
    command_line.run(application)
