"""Runs the commands of scripts/submit.py, each in a process forked from one that has imported everything.

Standard input has one JSON list of arguments a line (the log's path first), then an empty line that lets the fork begin. Standard
output has one JSON object for the fork (``{"pid": ...}``) and one for its end (``{"pid": ..., "code": ...}``).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import typer

import rollout_tasks.redis_client
import rollout_tasks.runs.submit_to_workers
import rollout_tasks.tasks  # noqa: F401
from rollout_tasks.cli import program
from rollout_tasks.cli.submit_script import application


def main() -> None:
    """Forks once for each line."""
    assert isinstance(application, typer.Typer)
    while line := sys.stdin.readline():
        log, *arguments = json.loads(line)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(writing)
            os.read(reading, 1)
            _run(log, arguments)
        os.close(reading)
        _say(pid=pid)
        sys.stdin.readline()
        os.close(writing)
        _, status = os.waitpid(pid, 0)
        _say(pid=pid, code=os.waitstatus_to_exitcode(status))


def _run(log: str, arguments: list[str]) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = ["submit.py", *arguments]
    program.run(application)


def _say(**said: int) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
