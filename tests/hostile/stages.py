"""The hostile ends of an attempt, a model's endpoint and a guest, each as a seed says: the same seed says the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

from tests.hostile import guest_answers, model_replies
from tests.hostile.mutations import Mutator
from tests.hostile.raw_http import Answer, Connection, RawServer, Request, Sent

GOOD = None
"""In the place of a seed: all is as it should be."""


class ModelStage:
    """A model's endpoint."""

    def __init__(self, longest_pause: float) -> None:
        """Good, until `seed` is set.

        Args:
            longest_pause: Seconds that stand for never.
        """
        self.seed: int | None = GOOD
        self._pause = longest_pause
        self._asked = 0
        self._server = RawServer(self._answer)
        self.url = f"http://127.0.0.1:{self._server.port}/v1"

    def begin(self, seed: int | None) -> None:
        """From now on it answers as this seed says."""
        self.seed, self._asked = seed, 0

    def end(self) -> None:
        """Closes it."""
        self._server.end()

    def _answer(self, request: Request, connection: Connection) -> Sent:
        good = model_replies.reply(request)
        seed, number = self.seed, self._asked
        self._asked += 1
        if seed is GOOD:
            return [good.sent()]
        share = Mutator(f"model {seed}").random.choice((0.3, 1.0, 1.0))
        mutator = Mutator(f"model {seed} {number}")
        if not mutator.chance(share):
            return [good.sent()]
        connection.spoiled = True
        if mutator.chance(0.5):
            return [Answer(mutator.json(json.loads(good.body))).sent()]
        return mutator.answer(good, self._pause)


class GuestStage:
    """A guest: its control server, its browser's debugger and VLC."""

    def __init__(self, longest_pause: float) -> None:
        """Good, until `begin`; arguments as for `ModelStage`."""
        self.seed: int | None = GOOD
        self._pause = longest_pause
        self._asked: Counter[str] = Counter()
        self._control = RawServer(self._answer)
        self._chromium = RawServer(self._browser)
        self._vlc = RawServer(self._player)
        self.ports = {
            "control": self._control.port,
            "chromium": self._chromium.port,
            "vlc": self._vlc.port,
            "vnc": self._vlc.port,
        }

    def begin(self, seed: int | None) -> None:
        """From now on it answers as this seed says."""
        self.seed = seed
        self._asked.clear()
        draw = Mutator(f"guest {seed}")
        self._way = draw.random.choice(("files", "files", "files", "values", "values", "answers", "screens"))
        self._share = draw.random.choice((0.1, 0.4, 1.0)) if self._way != "files" else 1.0
        self._only = draw.random.choice(("", "", "/screenshot", "/execute", "/setup/execute", "/terminal", "/accessibility"))

    def end(self) -> None:
        """Closes it."""
        for server in (self._control, self._chromium, self._vlc):
            server.end()

    def _mutator(self, what: str) -> Mutator:
        """One for each request, whatever order others come in."""
        self._asked[what] += 1
        return Mutator(f"guest {self.seed} {what} {self._asked[what]}")

    def _answer(self, request: Request, connection: Connection) -> Sent:
        path = request.path.partition("?")[0]
        good = guest_answers.control(request)
        if self.seed is GOOD or guest_answers.is_good(request):
            return [good.sent()]
        mutator = self._mutator(path)
        if path in {"/file", "/wallpaper", "/end_recording"}:
            return self._file(good, guest_answers.path_of(request), mutator, connection)
        if self._way == "screens" and path in {"/screenshot", "/accessibility"}:
            return [self._screen(good, mutator).sent()] if mutator.chance(self._share) else [good.sent()]
        if self._way not in {"values", "answers"} or not mutator.chance(self._share):
            return [good.sent()]
        if self._only and path != self._only:
            return [good.sent()]
        if self._way == "answers":
            connection.spoiled = True
            return mutator.answer(good, self._pause)
        good.body = mutator.json(json.loads(good.body)) if good.kind == "application/json" else mutator.content(good.body)
        return [good.sent()]

    def _file(self, good: Answer, path: str, mutator: Mutator, connection: Connection) -> Sent:
        if self._way == "answers" and mutator.chance(0.7):
            connection.spoiled = True
            return mutator.answer(good, self._pause)
        if good.status == 200 and not mutator.chance(0.1):
            good.body = spoiled(good.body, path, mutator)
        return [good.sent()]

    def _screen(self, good: Answer, mutator: Mutator) -> Answer:
        if good.kind == "application/json":
            tree = mutator.xml(json.loads(good.body)["AT"].encode()).decode("utf-8", "replace")
            return Answer(json.dumps({"AT": tree}).encode())
        return Answer(mutator.content(good.body), good.kind)

    def _browser(self, request: Request, connection: Connection) -> Sent:
        if "sec-websocket-key" in request.headers:
            connection.spoiled = True
            return chain([guest_answers.upgraded(request)], self._debugger(connection))
        good = guest_answers.chromium(request, self._chromium.port)
        mutator = self._mutator("browser")
        if self.seed is GOOD or not mutator.chance(0.3):
            return [good.sent()]
        connection.spoiled = True
        return mutator.answer(good, self._pause)

    def _debugger(self, connection: Connection) -> Iterator[bytes]:
        for command in guest_answers.commands(connection):
            mutator = self._mutator("debugger")
            for message in guest_answers.debugger_says(command):
                if self.seed is GOOD or not mutator.chance(0.1):
                    yield guest_answers.framed(json.dumps(message).encode())
                elif mutator.chance(0.7):
                    yield guest_answers.framed(mutator.json(message))
                else:
                    yield mutator.content(guest_answers.framed(json.dumps(message).encode()))

    def _player(self, request: Request, connection: Connection) -> Sent:
        good = guest_answers.vlc(request)
        if self.seed is GOOD:
            return [good.sent()]
        mutator = self._mutator("vlc")
        if self._way == "answers":
            connection.spoiled = True
            return mutator.answer(good, self._pause)
        return [Answer(mutator.xml(good.body), good.kind).sent()]


def spoiled(content: bytes, path: str, mutator: Mutator) -> bytes:
    """A file that is wrong, in a way that its kind is read to the place where it is."""
    if mutator.chance(0.05):
        return mutator.huge()
    if content.startswith(b"PK") and mutator.chance(0.75):
        return mutator.packed(content)
    if path.endswith((".xcu", ".html", ".svg", ".xml")):
        return mutator.xml(content)
    if content.startswith((b"{", b"[{")) and mutator.chance(0.75):
        return mutator.json(json.loads(content))
    return mutator.content(content)


