"""The answer of a checkpoint that transformers loads in a process of its own, which then ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rollout_tasks.errors import UserError
from rollout_tasks.unicode_text import one_line
from vm_pool.processes import end_with_children, environment_for_guests

MOST_TOKENS = 1_024
"""Of an answer."""
_PROGRAM = Path(__file__).with_name("transformers_program") / "answer_once.py"
_PACKAGES = ("torch", "transformers")
_END_SECONDS = 10.0
_LONGEST_ERROR = 500
"""Characters."""


@dataclass(frozen=True, slots=True)
class LocalAnswer:
    """What a checkpoint answered, and what it took."""

    answer: str
    cut_off: bool
    """Whether it has `MOST_TOKENS`, and no end."""
    prompt_tokens: int
    completion_tokens: int
    load_seconds: float
    """Until the prompt was ready, imports included."""
    seconds: float
    """Of the answer itself."""
    device: str
    model_class: str


def python_with_transformers(given: Path | None) -> str:
    """Returns the Python that is to load the checkpoint: the given one, else this one, else that of the vLLM on the PATH.

    Raises:
        UserError: There is none.
    """
    if given is not None:
        found = shutil.which(given)
        if found is None:
            raise UserError(f"--python: {given} is no program")
        return found
    if all(find_spec(package) for package in _PACKAGES):
        return sys.executable
    vllm = shutil.which("vllm")
    beside = Path(vllm).resolve().with_name("python") if vllm else None
    if beside is not None and os.access(beside, os.X_OK):
        return str(beside)
    raise UserError(
        "the packages torch and transformers are not installed here, and no vllm is on the PATH whose environment has them:"
        " uv pip install torch transformers, or name the Python of an environment that has them (--python)"
    )


def answer_of(python: str, checkpoint: Path, words: str, picture: Path | None, seconds: float) -> LocalAnswer:
    """Returns a checkpoint's answer.

    Args:
        python: The program that loads it.
        checkpoint: Its folder.
        words: What it is asked.
        picture: A picture that it is asked about.
        seconds: How long loading and answering may take.

    Raises:
        UserError: It gives none in that time.
    """
    asked = {
        "checkpoint": str(checkpoint.resolve()),
        "words": words,
        "picture": picture and str(picture.resolve()),
        "most_tokens": MOST_TOKENS,
    }
    with subprocess.Popen(  # noqa: S603
        [python, str(_PROGRAM)],
        env={**environment_for_guests(), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0,  # Ctrl-C ends it from here
    ) as process:
        try:
            output, _ = process.communicate(json.dumps(asked).encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            raise UserError(f"{checkpoint} has not answered within {seconds:g} s: --timeout gives it longer") from None
        finally:
            end_with_children(process, _END_SECONDS)
    return _read(python, checkpoint, process.returncode, output)


def _read(python: str, checkpoint: Path, code: int, output: bytes) -> LocalAnswer:
    """Reads what the program printed.

    Raises:
        UserError: It is no answer.
    """
    try:
        said: Any = json.loads(output)
    except (ValueError, RecursionError):
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        hint = ": is there enough memory?" if code == -9 else ""
        raise UserError(f"{checkpoint}: {python} {how} without an answer{hint}") from None
    if missing := said.get("missing"):
        raise UserError(
            f"{python} has no package {one_line(missing)}: install it there, or name the Python of an environment that"
            " has torch and transformers (--python)"
        )
    if error := said.get("error"):
        raise UserError(f"{checkpoint}: {one_line(error)[:_LONGEST_ERROR]}")
    return LocalAnswer(model_class=said.pop("class"), **said)
