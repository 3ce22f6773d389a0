"""Runs Python code that is sent as text."""

from __future__ import annotations

import sys

from flask import Blueprint, Response, jsonify

from . import processes, request_fields
from .problems import Problem

blueprint = Blueprint("python_code", __name__)

CODE_SECONDS = 85.0
"""Below the 90 s after which the client assumes that the server is dead."""


@blueprint.post("/run_python")
def run_python() -> Response:
    """Runs a script in a fresh interpreter."""
    code = request_fields.text(request_fields.body(), "code")
    try:
        done = processes.run([sys.executable, "-c", code], CODE_SECONDS)
    except Problem as problem:
        return jsonify(
            status="error", message=str(problem), need_more=False, output="", error=str(problem), return_code=-1
        )
    failed = done.returncode != 0
    return jsonify(
        status="error" if failed else "success",
        message=done.error if failed else done.output,
        need_more=False,
        output=done.output,
        error=done.error,
        return_code=done.returncode,
    )
