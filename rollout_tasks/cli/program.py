"""How every command runs: errors become one sentence and an exit code, never a traceback; JSON goes to stdout."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from benchmark.errors import BenchmarkError
from rollout_tasks.errors import WRONG_INPUT, UserError
from rollout_tasks.log_lines import keep_to_one_line
from rollout_tasks.unicode_text import one_line
from rollout_tasks.validation_messages import clause

DONE, INCOMPLETE, INTERRUPTED = 0, 1, 130
"""Exit codes of commands: all went well; something was lost or is missing; Ctrl-C. Wrong input is 2 (`errors`)."""
_NOBODY_READS = 1
"""Exit code where the reader of stdout has ended, as in ``| head``."""
_NOT_PLAIN = re.compile(r"[^ -~\n]")


def any_spelling(aliases: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns context settings of a command that accepts ``--num_rollouts`` for ``--num-rollouts``, and so on for every option.

    Args:
        aliases: More names of options, without dashes, and the names that help shows: two in one row would be cut.
    """
    known = aliases or {}

    def plain(token: str) -> str:
        name = token.replace("_", "-")
        return known.get(name, name)

    return {"token_normalize_func": plain}


def take_h_for_help(command: Any) -> None:
    """Makes a command and all its subcommands accept ``-h`` for ``--help``."""
    command.context_settings = {**command.context_settings, "help_option_names": ["--help", "-h"]}
    for below in getattr(command, "commands", {}).values():
        take_h_for_help(below)


def stopped_by_signals() -> threading.Event:
    """Returns an event that Ctrl-C or SIGTERM sets, for a command that runs until then."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Not in the handler itself: the main thread may hold the event's lock.
        signal.signal(number, lambda _number, _frame: threading.Thread(target=stop.set, daemon=True).start())
    return stop


def run(application: typer.Typer, name: str | None = None) -> None:
    """Runs a command; a user's error becomes one sentence on stderr and exit code 2.

    Args:
        application: The command.
        name: Its name in its help; default: the name of the program.
    """
    _open_standard_streams()
    keep_to_one_line()
    for stream in (sys.stdout, sys.stderr):  # in a locale that lacks a character, it is shown by its number
        with suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    command = typer.main.get_command(application)
    take_h_for_help(command)
    try:
        code: Any = command(prog_name=name, standalone_mode=False)
    except typer.TyperException as error:
        code = _fail(_usage(error)) if error.format_message() else WRONG_INPUT
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except SystemExit:  # of shell completion, which is to be fast: what follows imports Redis's client
        raise
    except (UserError, BenchmarkError) as error:
        code = _fail(str(error))
    except BrokenPipeError:
        code = _NOBODY_READS
    except _redis_errors() as error:
        of_pool = isinstance(error, _redis_errors()[0])
        code = _fail(str(error) if of_pool else f"Redis: {error}")
    except OSError as error:  # as of a folder of another user, or where no temporary file can be made
        where = f"{error.filename}: " if error.filename else ""
        code = _fail(f"{where}{error.strerror or error}")
    sys.exit(_with_all_written(code))


def _open_standard_streams() -> None:
    """Has streams that a shell has closed, as by ``>&-``, lead nowhere: Python has none then."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - it stays open


def _with_all_written(code: Any) -> Any:
    """Writes what stdout still holds; Python, which would do so at its end, reports errors its own way.

    Returns:
        The exit code: another one if it cannot be written.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _NOBODY_READS
    except OSError as error:
        if code != WRONG_INPUT:  # else it has said why
            code = _fail(f"standard output: {error.strerror}")
    else:
        return code
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _redis_errors() -> tuple[type[Exception], ...]:
    """Returns the errors of the pool, Redis and the broker; imported late, as that takes half of a failing command's time."""
    from kombu.exceptions import OperationalError  # here, because only a failing command needs them
    from redis import RedisError

    from vm_pool.errors import PoolError  # here, because its package imports Redis's client

    return PoolError, RedisError, OperationalError


def _usage(error: typer.TyperException) -> str:
    parameter: Any = getattr(error, "param", None)
    if isinstance(error.__cause__, ValidationError) and parameter is not None:
        return f"{max(parameter.opts, key=len)}: {clause(error.__cause__.errors()[0]).rstrip('.')}"
    sentence, close = error.format_message().rstrip("."), getattr(error, "possibilities", None)
    if close:  # the nearest first; the message sorts them by letters
        sentence = f"{str(error.message).rstrip('.')}; did you mean {close[0]}?"
    return sentence[:1].lower() + sentence[1:]


def tell(sentence: str) -> None:
    """Says a sentence on stderr, as one line: part of it may be what a task, a guest or an endpoint chose."""
    sys.stderr.write(f"{one_line(sentence)}\n")


def _fail(sentence: str) -> int:
    tell(f"error: {sentence}")
    return WRONG_INPUT


def print_json(values: Any) -> None:
    """Prints one JSON document on stdout; what its encoding may lack, or a terminal may obey, is escaped as JSON does it."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(values, indent=2, ensure_ascii=not unicode, default=str)
    sys.stdout.write(_NOT_PLAIN.sub(_escaped, text) + "\n")


def _escaped(one: re.Match[str]) -> str:
    return one[0] if one[0].isprintable() else json.dumps(one[0])[1:-1]
