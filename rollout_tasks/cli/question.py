"""One question to a model, from a command's arguments: words, and a picture if one is given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rollout_tasks.errors import UserError
from rollout_tasks.models.base import Message
from rollout_tasks.trajectories.data_urls import KINDS, data_url, kind_of

Words = Annotated[str, typer.Argument(metavar="WORDS", help="What to ask, as one argument.")]
Picture = Annotated[
    Path | None, typer.Option("--picture", metavar="FILE", help="A picture that goes before the words.")
]

LARGEST_PICTURE = 20 << 20
"""Bytes; endpoints refuse larger ones."""


def read_picture(path: Path) -> tuple[bytes, str]:
    """Returns a picture's bytes and kind.

    Raises:
        UserError: The file cannot be read, is too large, or is no picture that models take.
    """
    try:
        if not path.is_file():
            raise UserError(f"--picture: {path} is no file")
        with path.open("rb") as file:
            picture = file.read(LARGEST_PICTURE + 1)
    except OSError as error:  # of which reading names no path
        raise UserError(f"--picture: {path} cannot be read: {error.strerror}") from error
    if len(picture) > LARGEST_PICTURE:
        raise UserError(f"--picture: {path} has more than {LARGEST_PICTURE >> 20} MiB")
    kind = kind_of(picture)
    if kind is None:
        raise UserError(f"--picture: {path} is none of the pictures that models take: {', '.join(KINDS)}")
    return picture, kind


def question(words: str, picture: Path | None) -> Message:
    """Returns the message of Chat Completions that asks it.

    Raises:
        UserError: There are no words, or the picture cannot be sent.
    """
    if not words.strip():
        raise UserError("WORDS: there is nothing to ask")
    if picture is None:
        return {"role": "user", "content": words}
    url = data_url(*read_picture(picture))
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": words}]
    return {"role": "user", "content": parts}
