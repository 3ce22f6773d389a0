"""A browser that opens the address of a view, for tests: it hands the ticket in, keeps the cookie, and connects."""

from __future__ import annotations

from typing import Any

import httpx


class Browser:
    """What a browser does with the address of a view."""

    def __init__(self, url: str, path: str) -> None:
        self.page, _, self.ticket = path.partition("#")
        self.cookie = f"view-{self.page.split('/')[2]}"
        self.url = url
        self.http = httpx.Client(base_url=url)

    def hand_in(self, **headers: str) -> httpx.Response:
        sent = {"Origin": self.url, **headers}
        return self.http.post(f"{self.page}ticket", json={"ticket": self.ticket}, headers=sent)

    def socket(self, *, origin: str | None = "", cookie: str | None = None) -> Any:
        from websockets.sync.client import connect  # here: tests are collected without the package, too

        held = self.http.cookies.get(self.cookie) if cookie is None else cookie
        return connect(
            f"ws{self.url.removeprefix('http')}{self.page}socket",
            origin=self.url if origin == "" else origin,
            additional_headers={"Cookie": f"{self.cookie}={held}"} if held else {},
        )
