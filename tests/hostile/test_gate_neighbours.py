"""Neighbours on the network at a lent VM's gate: who has no token gets nothing through, and hinders nobody who has one."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import pytest
import redis

from tests.conftest import ValkeyServer
from tests.integration.vm_pool.test_gated_host import CountingProvider
from tests.integration.vm_pool.test_pool_faults import all_free, until
from tests.integration.vm_pool.test_pool_host import RunningHost
from vm_pool import VMPool, gate
from vm_pool.gate import STRANGERS, Gate, Gates
from vm_pool.gate_client import connect, dial
from vm_pool.gate_login import key_of, line_of, token_of
from vm_pool.gate_relay import relayed
from vm_pool.gate_tls import new_certificate
from vm_pool.host import VMHost
from vm_pool.lease import endpoint_from_json, endpoint_to_json
from vm_pool.states import Endpoint

KEY = b"what only hosts and borrowers know"


class Server:
    """A VM's: sends back what it is sent, in order, and says its last when it is told the last."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.heard = b""
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            while data := connection.recv(1 << 16):
                self.heard += data[:1000]
                connection.sendall(data)
                if data.endswith(b"goodbye"):
                    return

    def dial(self, _purpose: str) -> socket.socket:
        return socket.create_connection(self.listener.getsockname())


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.listener.close()


Opened = Callable[..., tuple[Gate, Endpoint]]


@pytest.fixture(params=["127.0.0.1", "0.0.0.0"], ids=["on this machine", "for other machines"])  # noqa: S104
def opened(request: pytest.FixtureRequest, server: Server) -> Iterator[Opened]:
    """Opens a gate: what its holder sees of it comes with it."""
    with ExitStack() as stack:
        gates = Gates(request.param, key=KEY)
        stack.callback(gates.close)

        def open_one() -> tuple[Gate, Endpoint]:
            one = gates.open(["control"], server.dial)
            stack.callback(one.close)
            return one, replace(one.endpoint, token=token_of(KEY, one.endpoint.gate))

        yield open_one


def everything(connection: socket.socket) -> bytes:
    """What comes until the other side ends."""
    said = b""
    with suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            said += piece
    return said


def exactly(connection: socket.socket, size: int) -> bytes:
    """So many bytes, or what comes until the other side ends."""
    said = b""
    while len(said) < size and (piece := connection.recv(size - len(said))):
        said += piece
    return said


def test_who_has_the_token_gets_through(opened: Opened, server: Server) -> None:
    _, endpoint = opened()
    data = bytes(range(256)) * 20_000

    with connect(endpoint, "control") as connection:  # of which, with TLS, one thread at a time may make use
        for start in range(0, len(data), 1 << 16):
            part = data[start : start + (1 << 16)]
            connection.sendall(part)
            assert exactly(connection, len(part)) == part
        connection.sendall(b"goodbye")
        assert everything(connection) == b"goodbye"

    assert bool(endpoint.certificate) == (endpoint.address == "0.0.0.0")  # noqa: S104
    assert server.heard.startswith(bytes(range(256)))


def test_what_comes_in_the_same_breath_as_the_token_is_passed_on(opened: Opened) -> None:
    _, endpoint = opened()
    if endpoint.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        plain = socket.create_connection((endpoint.address, endpoint.ports["control"]), timeout=20)
        connection: socket.socket = context.wrap_socket(plain)
    else:
        connection = socket.create_connection((endpoint.address, endpoint.ports["control"]), timeout=20)

    with connection:
        connection.sendall(line_of(endpoint.token) + b"hello, goodbye")
        assert everything(connection) == b"hello, goodbye"


def test_a_server_that_speaks_first_is_heard_by_who_has_said_nothing_but_the_token() -> None:
    """As a VNC server does."""
    ours, its = socket.socketpair()
    with ExitStack() as stack:
        gates = Gates("127.0.0.1", key=KEY)
        stack.callback(gates.close)
        gate = gates.open(["view"], lambda _purpose: ours)
        stack.callback(gate.close)
        stack.enter_context(its).sendall(b"RFB 003.008")
        endpoint = replace(gate.endpoint, token=token_of(KEY, gate.endpoint.gate))
        with connect(endpoint, "view") as connection:
            connection.settimeout(20)
            assert exactly(connection, 11) == b"RFB 003.008"


def test_who_does_not_shake_hands_is_turned_away_where_no_token_is_needed_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate, "ADMISSION_SECONDS", 0.3)
    with ExitStack() as stack:
        gates = Gates("0.0.0.0")  # noqa: S104
        stack.callback(gates.close)
        one = gates.open(["control"], lambda _purpose: socket.socketpair()[0])
        stack.callback(one.close)
        with socket.create_connection(("127.0.0.1", one.endpoint.ports["control"]), timeout=20) as silent:
            assert everything(silent) == b""


def test_programs_that_know_no_tokens_go_through_a_relay(opened: Opened) -> None:
    _, endpoint = opened()
    with relayed(endpoint) as there:
        assert (there.address, there.token, there.certificate) == ("127.0.0.1", "", "")
        for _ in range(3):
            with socket.create_connection((there.address, there.ports["control"]), timeout=20) as connection:
                connection.sendall(b"x" * 3_000_000 + b"goodbye")
                assert len(everything(connection)) == 3_000_007
            with socket.create_connection((there.address, there.ports["control"]), timeout=20) as connection:
                connection.sendall(b"half")
                connection.shutdown(socket.SHUT_WR)
                assert everything(connection) == b"half"


def spoken(line: bytes) -> Callable[[Endpoint], bytes]:
    return lambda _endpoint: line


STRANGE: dict[str, Callable[[Endpoint], bytes]] = {
    "nothing": spoken(b""),
    "a request": spoken(b"GET /screenshot HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
    "a browser's request": spoken(b"POST /execute HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\n" + b"x" * 100),
    "a guess": spoken(line_of("0" * 64)),
    "no token": spoken(line_of("")),
    "too short a one": lambda endpoint: line_of(endpoint.token[:-1]),
    "too long a one": lambda endpoint: line_of(endpoint.token + "0"),
    "another word": lambda endpoint: b"LEASE " + endpoint.token.encode() + b"\n",
    "no word": lambda endpoint: endpoint.token.encode() + b"\n" + b" " * 6,
    "another end": lambda endpoint: b"lease " + endpoint.token.encode() + b"\r",
    "in capitals": lambda endpoint: (
        line_of(endpoint.token.upper() + "").replace(b"LEASE", b"lease")
        if any(letter.isalpha() for letter in endpoint.token)
        else b"x" * 71
    ),
    "the gate's own name": lambda endpoint: line_of(endpoint.gate * 2),
    "another key's": lambda endpoint: line_of(token_of(b"guessed", endpoint.gate)),
    "another gate's": lambda _endpoint: line_of(token_of(KEY, "0" * 32)),
    "no key's": lambda endpoint: line_of(token_of(b"", endpoint.gate)),
    "zeros": spoken(bytes(71)),
    "a handshake": spoken(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)),
    "much": spoken(b"x" * 1_000_000),
}


@pytest.mark.parametrize("way", STRANGE)
@pytest.mark.parametrize("encrypted", [False, True], ids=["plainly", "in TLS"])
def test_who_has_none_reaches_nothing(way: str, encrypted: bool, opened: Opened, server: Server) -> None:
    _, endpoint = opened()
    line = STRANGE[way](endpoint)
    if encrypted and not endpoint.certificate and not line:
        pytest.skip("says nothing, like the other")
    said = b""
    with suppress(OSError), socket.create_connection((endpoint.address, endpoint.ports["control"]), timeout=5) as plain:
        connection: socket.socket = plain
        if encrypted:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = context.wrap_socket(plain)
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        said = everything(connection)

    assert b"HTTP" not in said
    assert line[:20] not in said or not line
    assert (server.connections, server.heard) == (0, b"")
    with connect(endpoint, "control") as holder:
        holder.sendall(b"goodbye")
        assert everything(holder) == b"goodbye"


def test_an_old_token_opens_no_later_gate(opened: Opened, server: Server) -> None:
    first, earlier = opened()
    first.close()
    _, later = opened()
    stale = replace(later, token=earlier.token)

    with suppress(OSError), connect(stale, "control") as connection:
        connection.sendall(b"stale")
        assert everything(connection) == b""

    assert server.heard == b""
    assert earlier.token != later.token


def test_a_crowd_without_tokens_does_not_keep_the_holder_out(opened: Opened, server: Server) -> None:
    _, endpoint = opened()
    crowd: list[socket.socket] = []
    try:
        for _ in range(3 * STRANGERS):
            crowd.append(socket.create_connection((endpoint.address, endpoint.ports["control"]), timeout=5))
        began = time.monotonic()
        for _ in range(5):
            with connect(endpoint, "control") as holder:
                holder.sendall(b"goodbye")
                assert everything(holder) == b"goodbye"
        assert time.monotonic() - began < 5
        assert server.connections == 5
        crowd[0].settimeout(gate.ADMISSION_SECONDS / 2)
        assert everything(crowd[0]) == b"", "the one that has waited longest had to go"
    finally:
        for one in crowd:
            one.close()


def test_who_says_it_too_slowly_is_sent_away(opened: Opened, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "ADMISSION_SECONDS", 0.5)
    _, endpoint = opened()
    with socket.create_connection((endpoint.address, endpoint.ports["control"]), timeout=20) as connection:
        began = time.monotonic()
        with suppress(OSError):
            for byte in line_of(endpoint.token):
                connection.sendall(bytes([byte]))
                time.sleep(0.05)
        assert everything(connection) == b""
        assert time.monotonic() - began < 10
    assert server.connections == 0


@pytest.mark.parametrize("through", ["a connection", "a relay"])
def test_nothing_is_said_to_a_gate_with_another_certificate(through: str) -> None:
    """Somebody between borrower and gate who has a certificate of his own."""
    heard: list[bytes] = []
    other = new_certificate()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            with suppress(OSError):
                while True:
                    plain, _ = listener.accept()
                    plain.settimeout(5)
                    with suppress(OSError), other.context.wrap_socket(plain, server_side=True) as connection:
                        heard.append(connection.recv(1000))

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        endpoint = Endpoint(
            "127.0.0.1", {"control": listener.getsockname()[1]}, "gate", new_certificate().sha256, "secret"
        )
        if through == "a connection":
            with pytest.raises(ConnectionRefusedError, match="another certificate"):
                connect(endpoint, "control")
        else:
            with (
                relayed(endpoint) as there,
                suppress(ConnectionResetError),  # so soon that connecting itself may hear of it
                socket.create_connection((there.address, there.ports["control"]), timeout=20) as connection,
            ):
                assert everything(connection) == b""
        time.sleep(0.2)
    assert b"".join(heard) == b""


def test_an_older_protocol_is_not_spoken() -> None:
    gates = Gates("0.0.0.0", key=KEY)  # noqa: S104
    opened = gates.open(["control"], lambda _purpose: socket.socket())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        dialled = dial(opened.endpoint, "control")
        with pytest.raises(OSError):  # noqa: PT011 (an alert, or an end)
            context.wrap_socket(dialled.socket)
    finally:
        opened.close()
        gates.close()


# -- in the pool ----------------------------------------------------------------------------------------------------


@pytest.fixture
def lent(valkey: ValkeyServer) -> Iterator[tuple[VMPool, CountingProvider, Any]]:
    """A VM of a hosted pool, lent out."""
    pool = VMPool(redis.Redis.from_url(valkey.url), "test")
    provider = CountingProvider()
    host = RunningHost(VMHost(VMPool(redis.Redis.from_url(valkey.url), "test"), provider, num_vms=1, host_id="box"))
    try:
        until(all_free(pool, 1))
        lease = pool.acquire("me", timeout=20)
        yield pool, provider, lease
        lease.release()
    finally:
        host.end()
        pool.close()


def test_a_leases_holder_has_the_token_and_redis_has_not(
    lent: tuple[VMPool, CountingProvider, Any], valkey: ValkeyServer
) -> None:
    pool, provider, lease = lent
    with connect(lease.endpoint, "control") as connection:
        connection.sendall(b"click")
        assert connection.recv(100) == b"1"
    assert provider.heard["box-0"] == ["click"]

    client = redis.Redis.from_url(valkey.url)
    stored = b""
    for key in client.scan_iter():
        stored += key
        kind = client.type(key)
        if kind == b"hash":
            stored += repr(client.hgetall(key)).encode()
        elif kind == b"zset":
            stored += repr(client.zrange(key, 0, -1)).encode()
        elif kind == b"stream":
            stored += repr(client.xrange(key)).encode()
        elif kind == b"list":
            stored += repr(client.lrange(key, 0, -1)).encode()
        elif kind == b"string":
            stored += client.get(key) or b""
    key = pool.gate_key
    assert key is not None
    assert lease.endpoint.gate.encode() in stored
    for secret in (lease.endpoint.token, key.hex(), repr(key), valkey.password):
        assert secret.encode() not in stored
    assert lease.endpoint.token not in repr(lease.endpoint)


def test_the_key_follows_from_the_password_or_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROLLOUT_GATE_KEY", raising=False)
    assert key_of(None) is None
    assert key_of("") is None
    assert key_of("one") == key_of("one") != key_of("other")
    monkeypatch.setenv("ROLLOUT_GATE_KEY", "named")
    assert key_of("one") == key_of(None) == key_of("other")


def test_without_a_password_nobody_has_a_secret_and_the_host_says_so(
    tmp_path: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROLLOUT_GATE_KEY", raising=False)
    server = ValkeyServer(tmp_path, aof=False)
    server.start()
    with redis.Redis.from_url(server.url) as client:
        client.config_set("requirepass", "")
    url = f"redis://127.0.0.1:{server.port}/0"
    pool = VMPool(redis.Redis.from_url(url), "test")
    caplog.set_level(logging.WARNING)
    host = RunningHost(VMHost(VMPool(redis.Redis.from_url(url), "test"), CountingProvider(), num_vms=1, host_id="box"))
    try:
        until(all_free(pool, 1))
        lease = pool.acquire("me", timeout=20)
        assert (lease.endpoint.gate, lease.endpoint.token) == ("", "")
        with socket.create_connection((lease.address, lease.ports["control"]), timeout=20) as connection:
            connection.sendall(b"click")
            assert connection.recv(100) == b"1"
        lease.release()
    finally:
        host.end()
        pool.close()
        server.kill_at_once()
    assert "Redis has no password, so leased VMs listen at ports without a login" in caplog.text


def test_hosts_of_an_older_version_tell_of_no_gate() -> None:
    old = endpoint_from_json('{"address": "10.0.0.5", "ports": {"control": 4000}}')

    assert old == Endpoint("10.0.0.5", {"control": 4000})
    assert endpoint_to_json(old) == '{"address": "10.0.0.5", "ports": {"control": 4000}}'
    new = Endpoint("10.0.0.5", {"control": 4000}, "name", "hash", "token")
    assert endpoint_from_json(endpoint_to_json(new)) == replace(new, token="")
