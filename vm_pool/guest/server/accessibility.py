"""What programs say of themselves to assistive technology, as XML; and the text in the terminal."""

from __future__ import annotations

import json
import sys

from flask import Blueprint, Response, jsonify

from . import processes
from .problems import Problem

blueprint = Blueprint("accessibility", __name__)

SECONDS = 30.0


@blueprint.get("/accessibility")
def tree() -> Response:
    """The tree of everything on the screen: ``{"AT": xml}``."""
    return jsonify(AT=_walk("tree"))


@blueprint.get("/terminal")
def terminal() -> Response:
    """What the terminal shows, or null without one."""
    return jsonify(output=_walk("terminal"), status="success")


def _walk(what: str) -> str | None:
    done = processes.run([sys.executable, "-m", "server.walk", what], SECONDS)
    if done.returncode:
        raise Problem(f"the programs' accessibility cannot be read: {done.error.strip()[-300:]}")
    found: str | None = json.loads(done.output)
    return found
