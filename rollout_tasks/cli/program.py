"""How every command runs: errors become one sentence and an exit code, never a traceback; JSON goes to stdout."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any

import typer
from pydantic import ValidationError

from benchmark.errors import BenchmarkError
from rollout_tasks.errors import WRONG_INPUT, UserError
from rollout_tasks.unicode_text import printable
from rollout_tasks.validation_messages import clause

DONE, INCOMPLETE, INTERRUPTED = 0, 1, 130
"""Exit codes of commands: all went well; something was lost or is missing; Ctrl-C. Wrong input is 2 (`errors`)."""
ANY_SPELLING = {"token_normalize_func": lambda token: token.replace("_", "-")}
"""Context settings that accept ``--num_rollouts`` for ``--num-rollouts``, and so on for every option."""


def take_h_for_help(command: Any) -> None:
    """Makes a command and all its subcommands accept ``-h`` for ``--help``."""
    command.context_settings = {**command.context_settings, "help_option_names": ["--help", "-h"]}
    for below in getattr(command, "commands", {}).values():
        take_h_for_help(below)


def run(application: typer.Typer, name: str | None = None) -> None:
    """Runs a command; a user's error becomes one sentence on stderr and exit code 2.

    Args:
        application: The command.
        name: Its name in its help; default: the name of the program.
    """
    for stream in (sys.stdout, sys.stderr):  # in a locale that lacks a character, it is shown by its number
        with suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    command = typer.main.get_command(application)
    take_h_for_help(command)
    try:
        code: Any = command(prog_name=name, standalone_mode=False)
    except typer.TyperException as error:
        code = _complain(_usage(error)) if error.format_message() else WRONG_INPUT
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except (UserError, BenchmarkError) as error:
        code = _complain(str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except _redis_errors() as error:
        of_pool = isinstance(error, _redis_errors()[0])
        code = _complain(str(error) if of_pool else f"Redis: {error}")
    except OSError as error:  # as of a folder of another user, or where no temporary file can be made
        where = f"{error.filename}: " if error.filename else ""
        code = _complain(f"{where}{error.strerror or error}")
    sys.exit(code)


def _redis_errors() -> tuple[type[Exception], ...]:
    """Returns the errors of the pool, Redis and the broker; imported late, as that takes half of a failing command's time."""
    from kombu.exceptions import OperationalError
    from redis import RedisError

    from vm_pool.errors import PoolError

    return PoolError, RedisError, OperationalError


def _usage(error: typer.TyperException) -> str:
    parameter: Any = getattr(error, "param", None)
    if isinstance(error.__cause__, ValidationError) and parameter is not None:
        return f"{max(parameter.opts, key=len)}: {clause(error.__cause__.errors()[0]).rstrip('.')}"
    sentence = error.format_message().rstrip(".")
    return sentence[:1].lower() + sentence[1:]


def _complain(sentence: str) -> int:
    sys.stderr.write(f"error: {printable(' '.join(sentence.split()))}\n")
    return WRONG_INPUT


def print_json(values: Any) -> None:
    """Prints one JSON document on stdout; where its encoding may lack characters, they are escaped as JSON does it."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    sys.stdout.write(json.dumps(values, indent=2, ensure_ascii=not unicode, default=str) + "\n")
