"""Runs commands for the server's callers, as the guest's user."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from typing import Any

from flask import Blueprint, Response, jsonify, request

from . import processes, request_fields, warm, windows
from .problems import Problem, bad_request

blueprint = Blueprint("commands", __name__)

COMMAND_SECONDS = 120.0
VERIFICATION_SECONDS = 120.0
ONE_CHECK_SECONDS = 5.0


@blueprint.post("/execute")
@blueprint.post("/setup/execute")
def execute() -> Response:
    """Runs a command to its end."""
    values = request_fields.body()
    command, shell = _command(values)
    done = warm.run(command[2], COMMAND_SECONDS) if warm.takes(command, shell=shell) else None
    done = done or processes.run(command, COMMAND_SECONDS, shell=shell)
    return jsonify(status="success", output=done.output, error=done.error, returncode=done.returncode)


@blueprint.post("/execute_with_verification")
@blueprint.post("/setup/execute_with_verification")
def execute_with_verification() -> Response:
    """Runs a command, then waits until its verification succeeds."""
    values = request_fields.body()
    command, shell = _command(values)
    verification = values.get("verification") or {}
    most = request_fields.seconds(values, "max_wait_time", 10, VERIFICATION_SECONDS)
    every = max(request_fields.seconds(values, "check_interval", 1, most), 0.05)
    done = processes.run(command, COMMAND_SECONDS, shell=shell)
    began = time.monotonic()
    while failed := _unverified(verification):
        if time.monotonic() - began + every > most:
            raise Problem(f"the command ran, but within {most:g} s it was not seen that {failed}")
        time.sleep(every)
    return jsonify(
        status="success",
        output=done.output,
        error=done.error,
        returncode=done.returncode,
        verification="success",
        wait_time=time.monotonic() - began,
    )


@blueprint.post("/setup/launch")
def launch() -> str:
    """Starts a program and leaves it running."""
    command, shell = _command(request_fields.body())
    processes.start(command, shell=shell, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return f"{processes.shown(command)} launched successfully"


@blueprint.post("/run_bash_script")
def run_bash_script() -> Response:
    """Runs a script of several lines."""
    values = request_fields.body()
    script = request_fields.text(values, "script")
    seconds = request_fields.seconds(values, "timeout", 100, 3600)
    folder = values.get("working_dir") or None
    if folder is not None and not os.path.isdir(folder := request_fields.expanded(str(folder))):
        raise bad_request(f"there is no folder {folder}")
    try:
        done = processes.run(["/bin/bash", "-c", script], seconds, folder=folder, merge=True)
    except Problem as problem:
        if problem.status != 504:
            raise
        # The client sets this deadline and expects an answer when it passes, not a server error.
        return jsonify(
            status="error", output="", error=f"Script execution timed out after {seconds:g} seconds", returncode=-1
        )
    status = "error" if done.returncode else "success"
    return jsonify(status=status, output=done.output, error="", returncode=done.returncode)


def _command(values: dict[str, Any]) -> tuple[str | list[str], bool]:
    """Returns the command of a request, and whether a shell reads it."""
    command, shell = values.get("command"), bool(values.get("shell", False))
    if isinstance(command, str) and command:
        if shell:
            return command, True
        try:
            command = shlex.split(command)
        except ValueError as error:
            raise bad_request(f"{request.path}: the command cannot be split into words: {error}") from error
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        raise bad_request(f"{request.path} wants a 'command': a text, or a list of texts")
    return [os.path.expanduser(word) if word.startswith("~/") else word for word in command], shell


def _unverified(verification: dict[str, Any]) -> str:
    """Returns the condition that does not hold yet; empty when all do."""
    if (title := verification.get("window_exists")) and not windows.find(str(title)):
        return f"a window {title!r} exists"
    if check := verification.get("command_success"):
        as_text = isinstance(check, str)
        try:
            done = processes.run(check if as_text else list(check), ONE_CHECK_SECONDS, shell=as_text)
        except Problem:
            done = None
        if done is None or done.returncode:
            return f"{processes.shown(check)} succeeds"
    return ""
