"""`rollouts model try`: one question to a checkpoint that no server has, loaded by transformers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from rollout_tasks.cli import program
from rollout_tasks.cli.question import Picture, Words, question
from rollout_tasks.errors import UserError
from rollout_tasks.models.local_answer import MOST_TOKENS, answer_of, python_with_transformers
from rollout_tasks.unicode_text import one_line, printable


def try_checkpoint(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A folder, as transformers saves one.")],
    words: Words,
    picture: Picture = None,
    python: Annotated[
        Path | None,
        typer.Option(
            "--python",
            metavar="PATH",
            help="A Python that has torch and transformers. Default: this one, else that of the vllm on the PATH.",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds until it must have answered.")] = 600.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the answer.")] = False,
) -> None:
    """Load a checkpoint with transformers, ask it once, and print its answer.

    It is loaded in a process of its own, on the GPUs if there are some, and takes
    the likeliest token each time. No code of the checkpoint is run.

    [bold]rollouts model try step-200 "What is on this screen?" --picture screen.png[/bold]
    """
    question(words, picture)  # says what is wrong with them
    if not (checkpoint / "config.json").is_file():
        what = "has no config.json, so it is no checkpoint" if checkpoint.is_dir() else "is no folder"
        raise UserError(f"CHECKPOINT: {checkpoint} {what}")
    answer = answer_of(python_with_transformers(python), checkpoint, words, picture, timeout)
    if as_json:
        program.print_json(dataclasses.asdict(answer))
        return
    typer.echo(printable(answer.answer))
    if answer.cut_off:
        program.tell(f"the answer was cut off after {MOST_TOKENS:,} tokens")
    program.tell(
        one_line(
            f"{answer.prompt_tokens:,} tokens asked and {answer.completion_tokens:,} answered in {answer.seconds:.1f} s,"
            f" after {answer.load_seconds:.1f} s of loading, by {answer.model_class} on {answer.device}"
        )
    )
