"""The tests' side of `attempt_player.py`: starts it, has attempts played, and says what is wrong with what came of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from rollout_tasks.errors import FailureClass
from rollout_tasks.runs.verdict import Verdict
from tests.conftest import REPOSITORY

START_SECONDS = 120.0
BEYOND_SECONDS = 25.0
"""After its limit an attempt may take so long to end: a cell is told to stop, and is ended where it does not."""
MOST_GROWTH = 300 << 20
WHOLE = ("threads", "children", "temporary")


class Stuck(AssertionError):
    """An attempt did not end."""


class Player:
    """One child, which plays one attempt at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines: TextIO = connection.makefile("rw", encoding="utf-8")
        self.pid: int = json.loads(self._lines.readline())["pid"]
        self.before: dict[str, Any] = {}
        """What it had after an attempt that went as it should."""

    def play(self, item: dict[str, Any], config: dict[str, Any], folder: Path) -> dict[str, Any]:
        """What came of an attempt.

        Raises:
            Stuck: Nothing came.
        """
        told = {"item": item, "config": config, "folder": str(folder), "before": self.before}
        self._lines.write(json.dumps(told) + "\n")
        self._lines.flush()
        self._connection.settimeout(config["limits"]["max_seconds"] + BEYOND_SECONDS + 20)
        try:
            line = self._lines.readline()
        except TimeoutError as error:
            os.kill(self.pid, signal.SIGUSR1)
            raise Stuck("it did not end; standard error says where it was") from error
        if not line:
            raise Stuck("its process ended")
        said: dict[str, Any] = json.loads(line)
        return said

    def close(self) -> None:
        """Lets it end."""
        self._lines.close()
        self._connection.close()


@contextmanager
def players(folder: Path, environment: dict[str, str], number: int) -> Iterator[Sequence[Player]]:
    """A worker with so many children."""
    (folder / "tmp").mkdir(parents=True)
    with ExitStack() as opened, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        listener.listen(number)
        listener.settimeout(START_SECONDS)
        log = opened.enter_context((folder / "player.log").open("wb"))
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.attempt_player", str(folder / "s"), str(number)],
            env={**os.environ, "TMPDIR": str(folder / "tmp"), **environment},
            cwd=REPOSITORY,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            found = [opened.enter_context(_accepted(listener)) for _ in range(number)]
            yield found
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            sys.stderr.write((folder / "player.log").read_text(errors="replace")[-4000:])


@contextmanager
def _accepted(listener: socket.socket) -> Iterator[Player]:
    connection, _ = listener.accept()
    player = Player(connection)
    try:
        yield player
    finally:
        with suppress(OSError):
            player.close()


def complaints(said: dict[str, Any], before: dict[str, Any], max_seconds: float) -> list[str]:
    """What an attempt must not do, as far as it did."""
    if "escaped" in said:
        return [f"it raised what is no verdict:\n{said['escaped']}"]
    wrong = []
    verdict = Verdict.from_dict(said["verdict"])
    if verdict.status == "completed":
        if verdict.failure_class is not None or (verdict.score is not None and not 0 <= verdict.score <= 1):
            wrong.append(f"it completed with {verdict.failure_class} and the score {verdict.score}")
    elif verdict.status != "failed" or not isinstance(verdict.failure_class, FailureClass) or not verdict.error:
        wrong.append(f"it ended as {verdict.status} without a class or a sentence")
    elif verdict.failure_class is FailureClass.INTERNAL:
        wrong.append(f"it counts as a defect of this program: {verdict.error}")
    if not said["printable"]:
        wrong.append(f"its sentence steers a terminal: {verdict.error!r}")
    if said["seconds"] > max_seconds + BEYOND_SECONDS:
        wrong.append(f"it took {said['seconds']:.1f} s, and may take {max_seconds:g} s")
    if said["alarm"]:
        wrong.append("its alarm still goes")
    wrong += [f"{name} were {before[name]} before, and are {said[name]}" for name in WHOLE if said[name] != before[name]]
    if said["descriptors"] > before["descriptors"]:
        wrong.append(f"{before['descriptors']} descriptors were open before, and {said['descriptors']} are")
    if said["rss"] - before["rss"] > MOST_GROWTH:
        wrong.append(f"it grew by {(said['rss'] - before['rss']) >> 20} MiB")
    return wrong


def in_turn(players: Sequence[Player], play: Callable[[Player, int], None]) -> None:
    """Has each player play in a thread of its own; what goes wrong in any of them is raised here."""
    raised: list[BaseException] = []

    def run(player: Player, number: int) -> None:
        try:
            play(player, number)
        except BaseException as error:  # noqa: BLE001 (raised again below)
            raised.append(error)

    threads = [threading.Thread(target=run, args=(player, number)) for number, player in enumerate(players)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]
