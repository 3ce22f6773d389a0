"""Does one action of the command `rollouts` in a process of its own, for the Python API.

An interruption here, such as Ctrl-C, is passed on to that process, which gets the time to clean up.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import IO, Any

from rollout_tasks.cli.run_file import as_yaml
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import WRONG_INPUT, UserError
from rollout_tasks.temporary_files import TemporaryFolder

_STOP_SECONDS = 120.0
"""How long an embedded run gets to stop its services, and a submission to take itself back, when its caller is interrupted."""
_COMMAND_LINE = """
import os, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
caller, stop = int(sys.argv.pop(1)), int(sys.argv.pop(1))
os.set_inheritable(caller, False)
def end_with_caller():
    os.read(caller, 1)
    os.kill(os.getpid(), stop)
mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
threading.Thread(target=end_with_caller, daemon=True).start()
signal.pthread_sigmask(signal.SIG_SETMASK, mask - {signal.SIGINT})
from rollout_tasks.cli.main import main
main()
"""
"""Heeds the SIGINT of its caller also where that ignores Ctrl-C itself, as a program does in a script's background.

Is stopped as by that when its caller has ended, or has lost sight of it: the caller's end of a pipe is closed then. The thread that
reads the pipe takes no signals.
"""
_LOST = 1
"""The exit code of a run that lost rollouts to the infrastructure: it is over all the same, and its report says so."""


def call_command(
    action: str,
    *arguments: str,
    config: RunConfig | None = None,
    show_progress: bool = False,
    redis_url: str | None = None,
) -> Mapping[str, Any]:
    """Does one action and returns the JSON that it prints.

    Args:
        action: The action's name, as in ``rollouts ACTION``.
        arguments: Its other words.
        config: A run's configuration, which the action gets as a run file.
        show_progress: Whether to write to stderr here what the action does.
        redis_url: Another Redis than the configured one.

    Raises:
        UserError: The action ended with an error, which it has reported in one sentence.
    """
    elsewhere = {} if redis_url is None else {"ROLLOUT_REDIS_URL": redis_url}
    # A run ends at once then; a submission takes itself back, or says what there is of it.
    stop_signal = signal.SIGTERM if action == "run" else signal.SIGINT
    errors: deque[str] = deque(maxlen=1)
    folder = TemporaryFolder("rollouts-call-")
    with contextlib.ExitStack() as afterwards, contextlib.ExitStack() as waiting:
        afterwards.callback(folder.remove)
        lifeline, _ = afterwards.enter_context(_pipe())
        command = [sys.executable, "-P", "-c", _COMMAND_LINE, str(lifeline), str(int(stop_signal))]
        command += [action, *arguments, "--json"]
        if config is not None:
            file = folder.path / "run.yaml"
            file.write_text(as_yaml(config), encoding="utf-8")
            command += ["--config", str(file)]
        # The process has this mask, too, until it can heed the signal.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        waiting.callback(signal.pthread_sigmask, signal.SIG_SETMASK, mask)
        process = subprocess.Popen(  # noqa: S603
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, **elsewhere, "PYTHONIOENCODING": "utf-8"},  # whatever the locale is
            pass_fds=[lifeline],
        )
        listener = threading.Thread(target=_listen, args=(process.stderr, errors, show_progress), daemon=True)
        try:
            listener.start()
            waiting.close()
            said = process.stdout.read() if process.stdout is not None else ""
            process.wait()
        except BaseException as stop:
            process.send_signal(stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_STOP_SECONDS)
                if listener.ident is not None:  # it could be started
                    listener.join()
                if errors:
                    stop.add_note(errors[-1])
            raise
        listener.join()
    if process.returncode in {0, _LOST} and said:
        values: Mapping[str, Any] = json.loads(said)
        return values
    last = errors[-1] if errors else "it said nothing"
    if process.returncode == WRONG_INPUT:
        raise UserError(last.removeprefix("error: "))
    raise UserError(f"rollouts {action} ended with exit code {process.returncode}: {last}")


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """Yields the ends of a pipe, to read and to write, which are closed afterwards, or when this process ends."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def _listen(lines: IO[str], last: deque[str], show: bool) -> None:
    for line in lines:
        if show:
            with contextlib.suppress(OSError, ValueError, AttributeError):  # else the run blocks: its reader has gone
                sys.stderr.write(line)
        if line.strip():
            last.append(line.strip())
