"""The gate in front of a VM, with real sockets: what passes, what ends with it, and who else is not disturbed."""

from __future__ import annotations

import asyncio
import errno
import inspect
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.descriptors import descriptors_left
from vm_pool import event_loop as event_loop_module
from vm_pool import gate as gate_module
from vm_pool.egress import parse_policy
from vm_pool.egress.relay import Listeners, Outlet
from vm_pool.event_loop import LoopThread, Tasks
from vm_pool.gate import Gate, GateError, Gates
from vm_pool.gate_relay import relayed

BIG = 8 * 1024 * 1024


class Server:
    """A TCP server that does with each connection what it is told, in a thread of its own."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.connections: list[socket.socket] = []
        self._serve = serve
        threading.Thread(target=self._accept, daemon=True).start()

    def dial(self, _purpose: str) -> socket.socket:
        return socket.create_connection(self.listener.getsockname()[:2], timeout=20)

    def close(self) -> None:
        self.listener.close()
        for connection in self.connections:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError as error:
                if error.errno != errno.EMFILE:  # else a test takes all descriptors for a moment
                    return
                time.sleep(0.01)
                continue
            self.connections.append(connection)
            threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection: socket.socket) -> None:
        with suppress(OSError):
            self._serve(connection)


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as ends:
        yield ends


@pytest.fixture
def gates(ends: ExitStack) -> Gates:
    gates = Gates()
    ends.callback(gates.close)
    return gates


@pytest.fixture
def serve(ends: ExitStack) -> Callable[[Callable[[socket.socket], None]], Server]:
    def serve(work: Callable[[socket.socket], None]) -> Server:
        server = Server(work)
        ends.callback(server.close)
        return server

    return serve


@pytest.fixture
def opened(gates: Gates, ends: ExitStack) -> Callable[..., Gate]:
    def opened(dial: gate_module.Dial, *purposes: str) -> Gate:
        gate = gates.open(list(purposes) or ["control"], dial)
        ends.callback(gate.close)
        return gate

    return opened


def knock(gate: Gate, purpose: str = "control") -> socket.socket:
    connection = socket.create_connection((gate.endpoint.address, gate.endpoint.ports[purpose]), timeout=20)
    connection.settimeout(20)
    return connection


def received(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (part := connection.recv(65536)):
        data += part
    return bytes(data)


def is_over(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


def test_bytes_pass_both_ways_and_each_purpose_has_its_own_port(opened: Callable, serve: Callable) -> None:
    servers = {"control": serve(echo), "vnc": serve(lambda end: end.sendall(b"RFB"))}
    gate = opened(lambda purpose: servers[purpose].dial(purpose), "control", "vnc")
    payload = bytes(range(256)) * (BIG // 256)
    with knock(gate) as connection, knock(gate, "vnc") as picture:
        threading.Thread(target=connection.sendall, args=(payload,), daemon=True).start()
        assert received(connection, BIG) == payload
        assert received(picture, 3) == b"RFB"


def test_each_side_may_end_its_half_first(opened: Callable, serve: Callable) -> None:
    def answer_at_the_end(connection: socket.socket) -> None:
        said = received(connection, BIG)
        connection.sendall(said[::-1])
        connection.close()

    gate = opened(serve(answer_at_the_end).dial)
    with knock(gate) as connection:
        connection.sendall(b"question")
        connection.shutdown(socket.SHUT_WR)
        assert received(connection, BIG) == b"noitseuq"
        assert is_over(connection)
    until(lambda: gate.connections == 0)


def test_what_both_sides_have_sent_is_read_whole_also_by_a_slow_reader(opened: Callable, serve: Callable) -> None:
    """A connection that ended in order is not reset: that would take away what the kernel has still to deliver."""

    def answer(connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(bytes(100_000))
        connection.close()

    gate = opened(serve(answer).dial)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((gate.endpoint.address, gate.endpoint.ports["control"]))
        connection.settimeout(20)
        connection.sendall(b"?")
        connection.shutdown(socket.SHUT_WR)
        until(lambda: gate.connections == 0)
        assert len(received(connection, BIG)) == 100_000


def test_closing_ends_connections_and_ports_at_once(opened: Callable, serve: Callable) -> None:
    server = serve(echo)
    gate = opened(server.dial)
    with knock(gate) as connection:
        connection.sendall(b"x")
        assert received(connection, 1) == b"x"

        gate.close()

        assert is_over(connection)
        assert is_over(server.connections[0])
        with pytest.raises(ConnectionRefusedError):
            knock(gate)
    assert gate.connections == 0
    gate.close()


def test_nothing_sent_after_the_close_arrives(opened: Callable, serve: Callable) -> None:
    arrived: list[bytes] = []

    def note(connection: socket.socket) -> None:
        while data := connection.recv(65536):
            arrived.append(data)

    gate = opened(serve(note).dial)
    with knock(gate) as connection:
        connection.sendall(b"before")
        until(lambda: arrived == [b"before"])
        gate.close()
        with suppress(OSError):
            connection.sendall(b"after")
        assert is_over(connection)
    assert arrived == [b"before"]


def test_a_vm_that_cannot_be_reached_is_one_connection_that_fails(
    opened: Callable, serve: Callable, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(echo)
    broken = [True]

    def dial(purpose: str) -> socket.socket:
        if broken:
            broken.clear()
            raise RuntimeError("it has no address")
        return server.dial(purpose)

    gate = opened(dial)
    with suppress(ConnectionResetError), knock(gate) as connection:  # so soon that connecting itself may hear of it
        assert is_over(connection)
    until(lambda: bool(caplog.messages))
    assert caplog.messages == ["a gate could not connect to the VM's control port: it has no address"]
    with knock(gate) as connection:
        connection.sendall(b"x")
        assert received(connection, 1) == b"x"


def test_a_connection_that_is_being_made_at_the_close_is_dropped(opened: Callable, serve: Callable) -> None:
    server = serve(echo)
    dialling, go_on = threading.Event(), threading.Event()

    def slow_dial(purpose: str) -> socket.socket:
        dialling.set()
        assert go_on.wait(20)
        return server.dial(purpose)

    gate = opened(slow_dial)
    with knock(gate) as connection:
        connection.sendall(b"action")
        assert dialling.wait(20)
        gate.close()
        go_on.set()
        assert is_over(connection)
    until(lambda: len(server.connections) == 1)
    assert is_over(server.connections[0])


def test_a_reader_that_does_not_read_holds_up_nobody_else(opened: Callable, serve: Callable) -> None:
    sent: list[int] = []

    def pour(connection: socket.socket) -> None:
        while True:
            sent.append(connection.send(b"x" * 65536))

    pouring, echoing = opened(serve(pour).dial), opened(serve(echo).dial)
    with knock(pouring) as slow, knock(echoing) as brisk:
        until(lambda: len(sent) > 0)
        seen = -1
        while seen != len(sent):  # until the pourer is held up
            seen = len(sent)
            time.sleep(0.3)
        assert sum(sent) < 64 * 1024 * 1024
        brisk.sendall(b"still here")
        assert received(brisk, 10) == b"still here"
        assert len(received(slow, 1000)) >= 1000


def test_only_so_many_connections_pass_at_a_time(
    opened: Callable, serve: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "CONNECTIONS", 3)
    gate = opened(serve(echo).dial)
    admitted = [knock(gate) for _ in range(3)]
    until(lambda: gate.connections == 3)
    with suppress(ConnectionResetError), knock(gate) as refused:
        assert is_over(refused)
    admitted.pop().close()
    until(lambda: gate.connections == 2)
    with knock(gate) as next_one:
        next_one.sendall(b"y")
        assert received(next_one, 1) == b"y"
    for connection in admitted:
        connection.close()


def test_a_gate_listens_on_ipv6_too(serve: Callable, ends: ExitStack) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    gates = Gates("::1")
    ends.callback(gates.close)
    gate = gates.open(["control"], serve(echo).dial)
    ends.callback(gate.close)
    with knock(gate) as connection:
        connection.sendall(b"z")
        assert received(connection, 1) == b"z"
    with relayed(gate.endpoint) as there:  # for desktop-env, which parts an address from ports at colons
        assert there.address == "127.0.0.1"
        with socket.create_connection((there.address, there.ports["control"]), timeout=5) as connection:
            connection.sendall(b"z")
            assert received(connection, 1) == b"z"


def test_of_a_name_with_both_kinds_of_addresses_ipv4_is_taken(
    monkeypatch: pytest.MonkeyPatch, serve: Callable, ends: ExitStack
) -> None:
    either = [(family, socket.SOCK_STREAM, 6, "", ()) for family in (socket.AF_INET6, socket.AF_INET)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_arguments, **_options: either)
    gates = Gates("localhost")
    ends.callback(gates.close)
    gate = gates.open(["control"], serve(echo).dial)
    ends.callback(gate.close)

    assert gate.endpoint.address == "127.0.0.1"


def test_a_vm_that_does_not_answer_costs_only_its_own_borrower(opened: Callable, serve: Callable) -> None:
    def dead(_purpose: str) -> socket.socket:
        raise ConnectionRefusedError("no server")

    def broken(_purpose: str) -> socket.socket:
        raise RuntimeError("box-1 is not running")

    for dial in (dead, broken):
        gate = opened(dial)
        with suppress(ConnectionResetError), knock(gate) as connection:  # so soon that connecting itself may hear of it
            assert is_over(connection)
        until(lambda gate=gate: gate.connections == 0)
    with knock(opened(serve(echo).dial)) as connection:
        connection.sendall(b"z")
        assert received(connection, 1) == b"z"


def test_a_server_that_hangs_up_hangs_up_through_the_gate(opened: Callable, serve: Callable) -> None:
    gate = opened(serve(lambda connection: connection.close()).dial)
    with knock(gate) as connection:
        assert is_over(connection)
    until(lambda: gate.connections == 0)


def test_ports_of_earlier_gates_are_not_used_again(gates: Gates, serve: Callable) -> None:
    server = serve(echo)
    seen: set[int] = set()
    for _ in range(300):
        gate = gates.open(["control", "vnc"], server.dial)
        ports = set(gate.endpoint.ports.values())
        assert len(ports) == 2
        assert not ports & seen
        seen |= ports
        gate.close()


def test_an_address_of_another_machine_is_refused_with_a_sentence() -> None:
    gates = Gates("192.0.2.1")
    with pytest.raises(GateError, match=r"a gate cannot listen on 192\.0\.2\.1: "):
        gates.open(["control"], lambda _purpose: socket.socket())
    with pytest.raises(GateError, match=r"192\.0\.2\.1"):
        gates.check()
    gates.close()


def test_other_machines_need_a_token() -> None:
    everywhere = "0.0.0.0"  # noqa: S104 (only looked at)
    with pytest.raises(
        GateError, match=r"leased VMs would listen on 0\.0\.0\.0 without a login: give Redis a password"
    ):
        Gates(everywhere).check()
    Gates(everywhere, key=b"key").check()
    Gates("127.0.0.1").check()


# What a gate opens, and what it leaves


def sockets() -> dict[int, socket.socket]:
    """This process's TCP sockets by descriptor, each by a copy that the caller closes."""
    found: dict[int, socket.socket] = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (numbers)
        with suppress(OSError):
            copy = socket.socket(fileno=os.dup(int(name)))
            if copy.family == socket.AF_INET:
                found[int(name)] = copy
            else:
                copy.close()
    return found


def how_many_sockets() -> int:
    found = sockets()
    for copy in found.values():
        copy.close()
    return len(found)


def the_gates_own(connection: socket.socket) -> socket.socket:
    """A copy of the gate's end of somebody's connection."""
    wanted, own = connection.getsockname(), None
    for copy in sockets().values():
        with suppress(OSError):
            if copy.getpeername() == wanted:
                own = copy
                continue
        copy.close()
    assert own is not None
    return own


def test_a_borrower_that_vanished_is_noticed_and_small_words_are_not_held_back(
    opened: Callable, serve: Callable
) -> None:
    server = serve(echo)
    with knock(opened(server.dial)) as connection:
        connection.sendall(b"x")
        assert received(connection, 1) == b"x"
        with the_gates_own(connection) as near, the_gates_own(server.connections[0]) as far:
            assert near.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            assert [near.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [30, 10, 3]
            assert [end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for end in (near, far)] == [1, 1]
            assert not os.get_blocking(near.fileno())


def test_a_gate_without_descriptors_takes_connections_once_it_has_some(
    opened: Callable, serve: Callable, caplog: pytest.LogCaptureFixture
) -> None:
    gate = opened(serve(echo).dial)
    for _ in range(2):  # after the first it goes on as before
        caplog.clear()
        with socket.socket() as connection:
            connection.settimeout(20)
            with descriptors_left(0):
                connection.connect((gate.endpoint.address, gate.endpoint.ports["control"]))
                until(lambda: bool(caplog.messages))
            connection.sendall(b"x")
            assert received(connection, 1) == b"x"
    assert caplog.messages[0].startswith("a gate's connection for control could not be taken: [Errno 24] ")


@pytest.fixture
def listeners(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """Every listening socket that is made from now on: kept, so that none is closed by nobody knowing it any more."""
    made: list[socket.socket] = []
    create_server = socket.create_server

    def kept(*args: object, **options: object) -> socket.socket:
        made.append(create_server(*args, **options))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(socket, "create_server", kept)
    return made


def still_open(sockets: list[socket.socket]) -> list[socket.socket]:
    return [one for one in sockets if one.fileno() != -1]


def test_a_gate_that_cannot_have_all_its_ports_leaves_none_open(gates: Gates, listeners: list[socket.socket]) -> None:
    gates.open(["control"], lambda _purpose: socket.socket()).close()  # its thread runs
    with (
        descriptors_left(2),
        pytest.raises(GateError, match=r"^a gate cannot listen on 127\.0\.0\.1: Too many open files$"),
    ):
        gates.open(["control", "vnc", "vlc"], lambda _purpose: socket.socket())
    assert len(listeners) == 1 + 2
    assert still_open(listeners) == []


def test_checking_leaves_nothing_open(gates: Gates, listeners: list[socket.socket]) -> None:
    gates.check()
    assert len(listeners) == 1
    assert still_open(listeners) == []


def test_ports_that_were_passed_over_are_freed(gates: Gates, listeners: list[socket.socket]) -> None:
    class FirstThree:
        """Has had the first three ports that it is asked about."""

        def __init__(self) -> None:
            self.asked: list[int] = []

        def __contains__(self, port: int) -> bool:
            self.asked.append(port)
            return len(self.asked) <= 3

    retired = FirstThree()
    gates._retired = retired  # type: ignore[assignment]
    with gates._listen() as listener:
        assert still_open(listeners) == [listener]
        assert listener.getsockname()[1] == retired.asked[-1]
        assert not listener.getblocking()
    assert len(set(retired.asked)) == 4, "none comes up twice"


def test_only_the_latest_ports_are_remembered(gates: Gates) -> None:
    assert gates._retired.maxlen == 8192
    gate = gates.open(["control", "vnc"], lambda _purpose: socket.socket())
    assert list(gates._retired) == list(gate.endpoint.ports.values())
    gate.close()


NARROW = """
import socket, sys
from pathlib import Path
from vm_pool.gate import Gates
from vm_pool.namespaces import bring_loopback_up
Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40000 40019")
bring_loopback_up()
gates, latest = Gates(), []
for _ in range(30):
    gate = gates.open(["control", "vnc"], lambda _purpose: socket.socket())
    ports = list(gate.endpoint.ports.values())
    assert not set(ports) & set(latest), (ports, latest)
    latest = [*latest, *ports][-8:]
    gate.close()
gates.close()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are root's")
def test_a_machine_with_few_ports_uses_them_again_before_they_run_out() -> None:
    command = ["unshare", "--net", sys.executable, "-c", NARROW]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_is_left_of_a_gate_after_its_end(serve: Callable, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = serve(echo)
    before, threads = how_many_sockets(), set(threading.enumerate())
    gates = Gates()
    gate = gates.open(["control", "vnc"], server.dial)
    connections = [knock(gate), knock(gate, "vnc")]
    for connection in connections:
        connection.sendall(b"x")
        assert received(connection, 1) == b"x"
    assert gate.connections == 2
    connections[0].close()  # in order
    until(lambda: gate.connections == 1)
    gate.close()
    gates.close()
    gates.close()
    connections[1].close()
    for connection in server.connections:
        connection.close()

    assert gate.connections == 0
    until(lambda: set(threading.enumerate()) <= threads)
    until(lambda: how_many_sockets() == before)


def test_a_loop_thread_runs_once_and_again_after_its_end() -> None:
    thread = LoopThread("a name")
    first = thread.loop
    assert thread.loop is first
    (running,) = [one for one in threading.enumerate() if one.name == "a name"]
    assert running.daemon
    thread.close()
    assert not running.is_alive()
    assert first.is_closed()
    thread.close()
    second = thread.loop
    assert second is not first
    thread.close()


def test_tasks_that_have_ended_are_forgotten_and_none_begins_after_the_end() -> None:
    begun: list[str] = []

    async def work(name: str) -> None:
        begun.append(name)
        if name == "stays":
            await asyncio.Event().wait()

    async def main() -> None:
        tasks = Tasks(asyncio.get_running_loop())
        assert not tasks.ended
        for name in ("goes", "stays"):
            await tasks.begin(work(name))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        (staying,) = tasks._running
        await tasks.end()
        assert tasks.ended
        assert staying.cancelled()
        late = work("late")
        await tasks.begin(late)
        assert inspect.getcoroutinestate(late) == inspect.CORO_CLOSED
        await asyncio.sleep(0)
        await tasks.end()

    asyncio.run(main())
    assert begun == ["goes", "stays"]


def a_gate(loop: asyncio.AbstractEventLoop, listener: socket.socket) -> Gate:
    return Gate(loop, {"control": listener}, lambda _purpose: socket.socket())


def an_outlet(loop: asyncio.AbstractEventLoop, listener: socket.socket) -> Outlet:
    return Outlet(loop, Listeners((listener,), ()), parse_policy("internet"), None, lambda _outlet: None)


@pytest.mark.parametrize("make", [a_gate, an_outlet])
def test_what_could_not_be_closed_in_time_does_not_count_as_closed(
    make: Callable[[asyncio.AbstractEventLoop, socket.socket], Gate | Outlet], monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, begun, going_on = LoopThread("stuck"), threading.Event(), threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)

    async def stuck_when_cancelled() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            going_on.wait(60)

    closing = make(thread.loop, listener)
    closing._tasks.begin_soon(stuck_when_cancelled())
    assert begun.wait(20)
    with monkeypatch.context() as hasty:
        hasty.setattr(event_loop_module, "CLOSE_SECONDS", 0.05)
        for _ in range(2):
            with pytest.raises(TimeoutError, match="thread is stuck"):
                closing.close()
            assert listener.fileno() >= 0
    going_on.set()
    closing.close()
    assert listener.fileno() == -1
    thread.close()
    closing.close()
