"""Makes the server's Flask application from its parts, and turns all errors into JSON."""

from __future__ import annotations

import logging

from flask import Flask, Response, jsonify
from werkzeug.exceptions import HTTPException

from . import accessibility, callers, commands, files, health, opening, python_code, recording, screen, windows
from .problems import Problem

PARTS = (screen, accessibility, commands, python_code, windows, files, opening, recording, health)


def make_app(screen_size: tuple[int, int]) -> Flask:
    """Returns the whole server, for a screen of this size."""
    app = Flask("guest", static_folder=None)
    app.config["SCREEN"] = screen_size
    app.before_request(callers.refuse_pages)
    for part in PARTS:
        app.register_blueprint(part.blueprint)
    app.register_error_handler(Problem, lambda problem: _answer(str(problem), problem.status))
    app.register_error_handler(HTTPException, lambda error: _answer(error.description, error.code))
    app.register_error_handler(Exception, _unexpected)
    return app


def _unexpected(error: Exception) -> tuple[Response, int]:
    logging.exception("unexpected")
    return _answer(f"{type(error).__name__}: {error}", 500)


def _answer(sentence: str | None, status: int | None) -> tuple[Response, int]:
    sentence = sentence or "no reason given"
    return jsonify(status="error", message=sentence, error=sentence), status or 500
