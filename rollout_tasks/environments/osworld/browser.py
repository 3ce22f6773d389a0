"""How desktop-env reaches a guest's browser: always at the port it was given, whatever address the browser reports."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import BrowserType

from rollout_tasks.environments.osworld.vm_client import vm_client_of

_DEVTOOLS = re.compile(r"/devtools/browser/[\w-]{1,100}")


def devtools_of(url: str) -> str:
    """Returns the URL where a guest's browser takes commands; the given URL if it does not lead to a guest.

    Args:
        url: Of its debugging port, as in ``http://127.0.0.1:9222``.

    Raises:
        ValueError: What answers there is not a browser.
        requests.RequestException: Nothing answers.
    """
    client = vm_client_of(url)
    if client is None:
        return url
    said = client.request("GET", f"{url.rstrip('/')}/json/version").json()
    path = urlsplit(str(said.get("webSocketDebuggerUrl"))).path if isinstance(said, dict) else ""
    if not _DEVTOOLS.fullmatch(path):
        raise ValueError(f"what answers at {url} is not a browser")
    return f"ws://{urlsplit(url).netloc}{path}"


def stay_with_the_guest() -> None:
    """Makes playwright use `devtools_of`; alone it connects to any address a guest names, and follows redirects."""
    if not hasattr(BrowserType.connect_over_cdp, "asks_first"):
        BrowserType.connect_over_cdp = _asking(BrowserType.connect_over_cdp)  # type: ignore[method-assign]


def _asking(connect: Any) -> Any:
    def connect_over_cdp(browser_type: Any, endpoint_url: str, **options: Any) -> Any:
        return connect(browser_type, devtools_of(endpoint_url), **options)

    connect_over_cdp.asks_first = True  # type: ignore[attr-defined]
    return connect_over_cdp
