"""Commands to a session's process, which may read nothing for a while, or be gone."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from rollout_tasks.cells.channel import ChannelEnded, MessageChannel, frame_of
from rollout_tasks.service.command_sender import CommandSender

LARGE = 300_000 * "x"


@pytest.fixture(name="sockets")
def _sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_what_a_process_does_not_read_at_once_comes_whole_and_in_order(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    sender, reader = CommandSender(MessageChannel(sockets[0])), MessageChannel(sockets[1])
    for turn in range(2):  # the second time after all was read
        began = time.monotonic()
        for number in range(20):
            sender.send(frame_of({"number": number, "text": LARGE if number % 3 else "short"}))
        assert time.monotonic() - began < 5, turn
        read = [reader.receive() for _ in range(20)]
        assert [one["number"] for one in read] == list(range(20))
        assert {len(one["text"]) for one in read} == {len(LARGE), len("short")}


def test_a_process_that_is_gone_is_no_error_and_keeps_no_thread(sockets: tuple[socket.socket, socket.socket]) -> None:
    sender = CommandSender(MessageChannel(sockets[0]))
    sender.send(frame_of({"text": LARGE}))
    sender.send(frame_of({"text": LARGE}))
    sockets[1].close()
    deadline = time.monotonic() + 10
    while any(thread.name == "unsent commands" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    sender.send(frame_of({"text": "more"}))


def test_a_process_that_cannot_be_told_anything_is_given_up(
    sockets: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    channel = MessageChannel(sockets[0])
    CommandSender(channel).send(frame_of({"text": 10 * LARGE}))
    with pytest.raises(ChannelEnded):
        channel.receive()
