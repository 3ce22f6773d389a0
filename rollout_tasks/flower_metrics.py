"""Puts Flower's `/metrics` behind Flower's login, if any: it names workers and tasks, and Flower leaves it open."""

from __future__ import annotations

import sys
from typing import Any


def require_login() -> None:
    """Requires the login, in a process that has loaded Flower's pages; does nothing elsewhere."""
    monitor: Any = sys.modules.get("flower.views.monitor")
    if monitor is None or hasattr(monitor.Metrics.get, "asks_for_login"):
        return
    from tornado.web import authenticated

    open_to_all = monitor.Metrics.get
    asking = authenticated(open_to_all)

    async def get(handler: Any) -> None:
        options = handler.application.options
        answer = (asking if options.basic_auth or options.auth else open_to_all)(handler)
        if answer is not None:
            await answer

    get.asks_for_login = True  # type: ignore[attr-defined]
    monitor.Metrics.get = get
