"""A VNC client over a view of a lent desktop, for tests: real pictures of a real server."""

from __future__ import annotations

from tests.integration.service.view_browser import Browser

PLACE = 300
"""Where is clicked: far from the pointer, whose shape may change by itself."""
RAW_ALONE = b"\x02\x00\x00\x01\x00\x00\x00\x00"
"""Pictures without compression, in which the server draws the pointer, too."""


class VNCClient:
    """A VNC client over a view."""

    def __init__(self, browser: Browser) -> None:
        self._connection = browser.socket()
        self._left = b""

    def __enter__(self) -> VNCClient:
        self._connection = self._connection.__enter__()
        version = self._take(12)
        self._connection.send(version)
        self._take(self._take(1)[0])
        self._connection.send(b"\x01")
        assert self._take(4) == bytes(4), "it needs no password"
        self._connection.send(b"\x01")
        start = self._take(24)
        self._pixel_bytes = start[4] // 8
        self._take(int.from_bytes(start[20:24]))
        self._connection.send(RAW_ALONE)
        return self

    def __exit__(self, *details: object) -> None:
        self._connection.__exit__(*details)

    def screen(self) -> bytes:
        """What is shown now around the place of the click, after all that was sent before."""
        area = (PLACE - 100, PLACE - 100, 300, 300)
        self._connection.send(b"\x03\x00" + b"".join(number.to_bytes(2) for number in area))
        kind, _, high, low = self._take(4)
        assert kind == 0
        pieces = []
        for _ in range(256 * high + low):
            head = self._take(12)
            width, height = int.from_bytes(head[4:6]), int.from_bytes(head[6:8])
            assert head[8:] == bytes(4)
            pieces.append(head + self._take(width * height * self._pixel_bytes))
        return b"".join(pieces)

    def settled(self) -> bytes:
        """What is shown once nothing changes any more."""
        seen = [self.screen(), self.screen()]
        while seen[-1] != seen[-2]:
            seen.append(self.screen())
        return seen[-1]

    def right_click(self) -> None:
        for buttons in (0, 4, 0):
            self._connection.send(bytes([5, buttons]) + PLACE.to_bytes(2) + PLACE.to_bytes(2))

    def _take(self, count: int) -> bytes:
        while len(self._left) < count:
            self._left += self._connection.recv(timeout=60)
        taken, self._left = self._left[:count], self._left[count:]
        return taken
