"""Setting a guest's clock after it was reverted: what an earlier user's guest said is no answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from vm_pool.providers.guest_server import DesktopUnwell
from vm_pool.providers.qemu.process import QemuProcess


@pytest.fixture
def guest() -> Iterator[tuple[QemuProcess, socket.socket]]:
    """A machine, and its guest's end of the clock's serial port."""
    machine = QemuProcess("clock-test")
    machine._clock, port = socket.socketpair()
    with machine._clock, port:
        port.settimeout(10.0)
        yield machine, port


def answering(port: socket.socket, answer: bytes) -> threading.Thread:
    """A guest that hears one question and answers it."""

    def answer_once() -> None:
        assert port.recv(100).startswith(b"time ")
        port.sendall(answer)

    thread = threading.Thread(target=answer_once)
    thread.start()
    return thread


@pytest.mark.parametrize("left", [b"", b"x\n", b"set\n", b"failed\n", b"set", bytes(100_000)])
def test_what_was_said_before_the_question_is_no_answer(guest: tuple[QemuProcess, socket.socket], left: bytes) -> None:
    machine, port = guest
    for answer in (b"set\n", b"failed\n", b"set\n"):
        port.sendall(left)
        thread = answering(port, answer)
        if answer == b"set\n":
            machine.set_clock()
        else:
            with pytest.raises(DesktopUnwell, match=r"clock-test: its clock could not be set: b'failed\\n'"):
                machine.set_clock()
        thread.join()


def test_an_answer_without_end_is_none(guest: tuple[QemuProcess, socket.socket]) -> None:
    machine, port = guest
    thread = answering(port, b"y" * 5000)
    with pytest.raises(DesktopUnwell, match="could not be set: b'yyy"):
        machine.set_clock()
    thread.join()


def test_a_machine_that_has_ended_has_no_clock(guest: tuple[QemuProcess, socket.socket]) -> None:
    machine, port = guest
    port.close()
    with pytest.raises(DesktopUnwell, match="clock-test: its clock could not be set: "):
        machine.set_clock()
