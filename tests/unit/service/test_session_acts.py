"""Acts of a session whose process answers late, wrongly or not at all: each is answered once, and nobody waits for ever."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks.cells.channel import MessageChannel
from rollout_tasks.config import parse_config
from rollout_tasks.environments.base import Observation
from rollout_tasks.errors import FailureClass
from rollout_tasks.service.command_sender import CommandSender
from rollout_tasks.service.played_session import PlayedSession
from rollout_tasks.service.session_order import SessionOrder, packed
from rollout_tasks.service.session_results import SessionEnded, SessionRefused
from rollout_tasks.service.session_spawner import SpawnedProcess
from tests.virtual_machines import wait_until


class Played:
    """A session whose process's part the test plays."""

    def __init__(self, folder: Path) -> None:
        ours, self.theirs = socket.socketpair()
        self.process = MessageChannel(self.theirs)
        self.sleeper = subprocess.Popen(["sleep", "600"])
        spawned = SpawnedProcess(MessageChannel(ours), os.pidfd_open(self.sleeper.pid))
        order = SessionOrder("lease-1", Item("one", "Do it."), parse_config({}), folder)
        self.session = PlayedSession(order, spawned, lambda _session, _end: None, 60.0)
        assert self.process.receive()["session_id"] == "lease-1"
        shown, images = packed(Observation("", ()))
        self.process.send({"event": "ready", "shown": shown, "tools": [], "instructions": ""}, images)
        self.session.wait_until_ready()

    def reply(self, number: int, **changes: Any) -> None:
        common = {"reply": number, "status": "success", "response": str(number), "over": None, "shown": None}
        self.process.send({**common, "turn": number, "seconds": 0.1, **changes})

    def end(self) -> None:
        self.sleeper.kill()
        self.sleeper.wait()
        self.theirs.close()
        assert self.session.wait_until_ended(20)


@pytest.fixture(name="played")
def _played(tmp_path: Path) -> Iterator[Played]:
    made = Played(tmp_path)
    yield made
    made.end()


def test_an_act_is_begun_without_a_wait_and_another_one_only_after_it(played: Played) -> None:
    first = played.session.try_act("work", {}, "a")
    assert first is not None
    assert not first.done()
    assert played.session.calls == 1
    assert played.session.try_act("work", {}, "b") is None
    assert played.process.receive()["number"] == 1
    played.reply(1)
    assert first.result(20).response == "1"
    wait_until(lambda: played.session.calls == 0, seconds=20)
    again = played.session.try_act("work", {}, "a")
    assert again is not None
    assert again.result(0) == first.result()
    played.sleeper.kill()


def test_late_and_unknown_replies_change_nothing(played: Played) -> None:
    played.reply(7)
    act = played.session.try_act("work", {}, "")
    assert act is not None
    played.reply(2)
    played.reply(1)
    played.reply(1, turn=9)
    assert act.result(20).turn == 1
    assert played.session.turn == 1


def test_a_refused_act_leaves_room_for_the_next(played: Played) -> None:
    act = played.session.try_act("work", {}, "a")
    assert act is not None
    played.process.send({"reply": 1, "refused": "the episode is over (done)"})
    with pytest.raises(SessionRefused, match="the episode is over"):
        act.result(20)
    with pytest.raises(SessionRefused, match="the arguments are not JSON"):
        played.session.act("work", {"x": float("nan")}, "b")
    with ThreadPoolExecutor(1) as threads:
        last = threads.submit(played.session.act, "work", {}, "c")
        wait_until(lambda: played.session.calls == 1, seconds=20)
        played.reply(2)
        assert last.result(20).response == "2"


@pytest.mark.parametrize("missing", ["turn", "seconds", "status", "over"])
def test_a_reply_that_cannot_be_used_ends_the_session(played: Played, missing: str) -> None:
    act = played.session.try_act("work", {}, "a")
    assert act is not None
    reply = {"reply": 1, "status": "success", "response": "", "over": None, "shown": None, "turn": 1, "seconds": 0.1}
    played.process.send({name: value for name, value in reply.items() if name != missing})
    with pytest.raises(SessionEnded, match="the process that played the session ended by itself"):
        act.result(20)
    assert played.session.end is not None
    assert played.session.end.failure_class is FailureClass.WORKER_LOST
    with pytest.raises(SessionEnded):
        played.session.act("work", {}, "b")


def test_an_act_ends_with_its_process(played: Played) -> None:
    act = played.session.try_act("work", {}, "a")
    assert act is not None
    played.sleeper.kill()
    played.theirs.shutdown(socket.SHUT_RDWR)
    with pytest.raises(SessionEnded, match="ended by itself"):
        act.result(20)
    assert played.session.calls == 0


def test_an_act_that_ended_with_its_process_while_it_was_sent_has_ended_once(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent_late_and_broken(_sender: CommandSender, _frame: bytes) -> None:
        played.sleeper.kill()
        played.theirs.shutdown(socket.SHUT_RDWR)
        assert played.session.wait_until_ended(20)
        raise MemoryError

    monkeypatch.setattr(CommandSender, "send", sent_late_and_broken)
    act = played.session.try_act("work", {}, "a")
    assert act is not None
    with pytest.raises(SessionEnded, match="ended by itself"):
        act.result(20)
    with pytest.raises(SessionEnded, match="ended by itself"):
        played.session.act("work", {}, "b")


def test_an_act_that_may_have_begun_is_never_called_failed(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever believed that would send it again."""
    told = threading.Event()

    def sent_and_broken(_sender: CommandSender, _frame: bytes) -> None:
        told.set()
        raise MemoryError

    monkeypatch.setattr(CommandSender, "send", sent_and_broken)
    act = played.session.try_act("work", {}, "a")
    assert act is not None
    assert told.is_set()
    wait_until(lambda: played.sleeper.poll() is not None, seconds=20)  # killed: only its end can tell
    played.theirs.shutdown(socket.SHUT_RDWR)
    with pytest.raises(SessionEnded, match="ended by itself"):
        act.result(20)
