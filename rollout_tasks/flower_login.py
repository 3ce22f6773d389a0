"""Keeps Flower behind a login, as it names workers and tasks: it does not start without one, and `/metrics` asks for it, too."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rollout_tasks.errors import WRONG_INPUT

_MUST = "set FLOWER_BASIC_AUTH to USER:PASSWORD, in ASCII, neither of them empty"


def require_login() -> None:
    """Requires the login, in a process that has loaded Flower's pages; does nothing elsewhere."""
    monitor: Any = sys.modules.get("flower.views.monitor")
    flower: Any = sys.modules.get("flower.app")
    if monitor is None or flower is None or hasattr(monitor.Metrics.get, "asks_for_login"):
        return
    _refuse_to_start_without(flower.Flower)
    _ask_at_metrics(monitor.Metrics)


def why_unusable(logins: Sequence[str] | None, *, other_login: bool) -> str | None:
    """Returns why Flower must not start with these logins, as one sentence that shows none of them; None if it may.

    Args:
        logins: What FLOWER_BASIC_AUTH gives, split at its commas, as Flower does.
        other_login: Whether people log in by OAuth (`--auth`), so that none of these is needed.
    """
    if not logins:
        return None if other_login else f"Flower has no login: {_MUST}"
    for login in logins:
        user, colon, password = login.partition(":")
        if not colon:
            problem = "has a login without a colon (a comma begins another login)"
        elif not (user and password):
            problem = f"has a login without a {'password' if user else 'user'}"
        elif not (login.isascii() and login.isprintable()):
            problem = "has a login with other characters, which nobody can log in with"
        else:
            continue
        return f"FLOWER_BASIC_AUTH (or --basic_auth) {problem}: {_MUST}"
    return None


def _refuse_to_start_without(flower: Any) -> None:
    listen = flower.start_http_server

    def start_http_server(self: Any) -> Any:
        """Listens, if there is a login."""
        problem = why_unusable(self.options.basic_auth, other_login=bool(self.options.auth))
        if problem:
            sys.stderr.write(f"error: {problem}\n")
            raise SystemExit(WRONG_INPUT)
        return listen(self)

    flower.start_http_server = start_http_server


def _ask_at_metrics(metrics: Any) -> None:
    from tornado.web import authenticated  # here, because only Flower's process has it imported

    asking = authenticated(metrics.get)

    async def get(handler: Any) -> None:
        answer = asking(handler)
        if answer is not None:
            await answer

    get.asks_for_login = True  # type: ignore[attr-defined]
    metrics.get = get
