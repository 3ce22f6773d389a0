"""A TCP gate in front of a VM: fresh ports for each lease, closed at its end. This enforces the fence where the VM is.

A client that was paused or cut off may still have the address and open connections of a lease that is over. Closing the
gate ends them all, and those ports are not reused soon. Connections without a token are refused, and those between
machines use TLS. All gates of a process share one event loop in one thread.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vm_pool.errors import PoolError
from vm_pool.event_loop import LoopThread, Tasks, drop, shut
from vm_pool.gate_client import Dialled
from vm_pool.gate_login import LINE_BYTES, VARIABLE, new_gate, opens
from vm_pool.gate_origins import OriginCheck
from vm_pool.gate_streams import End, PlainEnd, TLSEnd
from vm_pool.gate_tls import Certificate, client_context, hash_of, is_this_machine, new_certificate
from vm_pool.states import Endpoint

log = logging.getLogger(__name__)

Dial = Callable[[str], socket.socket | Dialled]
"""Connects to the VM for a purpose (``control``, ``chromium``, ...); may block, and has its own timeout."""

CONNECTIONS = 256
"""How many connections a gate allows at a time; further ones are refused."""
STRANGERS = 64
"""How many connections without a token yet a gate keeps; beyond that, the oldest is closed."""
ADMISSION_SECONDS = 10.0
"""For the TLS handshake and the token."""
DIALLING = 4
"""How many connections to one VM are being made at a time: a frozen VM must not use up the threads of the others."""
RETIRED_PORTS = 8192
"""How many of the latest ports are not reused: an old address must lead to no other VM. At most half of those there are."""
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ACCEPT_PAUSE_SECONDS = 0.1
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class GateError(PoolError):
    """A gate cannot be opened; the message says why in one sentence."""


@dataclass(frozen=True, slots=True)
class Login:
    """What a gate checks tokens against."""

    key: bytes
    gate: str
    """The gate's name."""


class Gates:
    """Opens gates, and runs them in its own thread.

    Args:
        address: Of this machine, for the gates to listen on and for clients to connect to.
        key: The key that tokens are made with; None: no token is needed.
        refuse_pages: Whether foreign web pages are refused; see `OriginCheck`. Only on 127.0.0.1, and without a key.
    """

    def __init__(self, address: str = "127.0.0.1", key: bytes | None = None, *, refuse_pages: bool = False) -> None:
        self.address = address
        self._key = key
        self._refuse_pages = refuse_pages
        self._certificate: Certificate | None = None
        self._retired: deque[int] = deque(maxlen=_how_many_retire())
        self._lock = threading.Lock()
        self._thread = LoopThread("gates")

    def check(self) -> None:
        """Makes sure that gates can be opened.

        Raises:
            GateError: The address is not one of this machine's, or other machines would need no token there.
        """
        try:
            self._listen().close()
        except OSError as error:
            raise self._cannot_listen(error) from error
        if self._key is None and not is_this_machine(self.address):
            raise GateError(
                f"leased VMs would listen on {self.address} without a login: give Redis a password, or set {VARIABLE}"
                " here and on the workers' machines"
            )

    def open(self, purposes: list[str], dial: Dial) -> Gate:
        """Opens a gate with a fresh port for each purpose.

        Raises:
            GateError: The address is not one of this machine's, or there are no ports left.
        """
        with self._lock:
            login = Login(self._key, new_gate()) if self._key is not None else None
            if self._certificate is None and not is_this_machine(self.address):
                self._certificate = new_certificate()
            listeners: dict[str, socket.socket] = {}
            try:
                for purpose in purposes:
                    listeners[purpose] = self._listen()
            except OSError as error:
                for listener in listeners.values():
                    listener.close()
                raise self._cannot_listen(error) from error
            gate = Gate(self._thread.loop, listeners, dial, login, self._certificate, refuse_pages=self._refuse_pages)
            self._retired.extend(gate.endpoint.ports.values())
        return gate

    def open_on(self, listeners: dict[str, socket.socket], dial: Dial) -> Gate:
        """Opens a gate on sockets that already listen, as in another network namespace; it closes them at its end.

        Args:
            listeners: By purpose.
            dial: As for `open`.
        """
        for listener in listeners.values():
            listener.setblocking(False)
        return Gate(self._thread.loop, listeners, dial)

    def close(self) -> None:
        """Ends the thread; close the gates first."""
        self._thread.close()

    def _cannot_listen(self, error: OSError) -> GateError:
        return GateError(f"a gate cannot listen on {self.address}: {error.strerror or error}")

    def _listen(self) -> socket.socket:
        """Returns a listening socket on a port that no gate used lately."""
        families = [found[0] for found in socket.getaddrinfo(self.address, 0, type=socket.SOCK_STREAM)]
        # Of a name with both kinds of addresses, the kind that all clients speak.
        family = socket.AF_INET if socket.AF_INET in families else families[0]
        passed_over: list[socket.socket] = []  # kept open until a good one is found, so that no port comes up twice
        try:
            while True:
                listener = socket.create_server((self.address, 0), family=family, backlog=128)
                if listener.getsockname()[1] not in self._retired:
                    listener.setblocking(False)
                    return listener
                passed_over.append(listener)
        finally:
            for listener in passed_over:
                listener.close()


def _how_many_retire() -> int:
    """Returns how many ports are not reused: fewer than `RETIRED_PORTS` where this machine's range of ports is narrow."""
    with suppress(OSError, ValueError):
        first, last = map(int, _PORT_RANGE.read_text(encoding="ascii").split())
        return min(RETIRED_PORTS, (last - first + 1) // 2)
    return RETIRED_PORTS


class Gate:
    """The access to one VM for one lease. Made by `Gates.open`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listeners: dict[str, socket.socket],
        dial: Dial,
        login: Login | None = None,
        certificate: Certificate | None = None,
        *,
        refuse_pages: bool = False,
    ) -> None:
        address = next(iter(listeners.values())).getsockname()[0] if listeners else ""
        self.endpoint = Endpoint(
            address,
            {name: one.getsockname()[1] for name, one in listeners.items()},
            login.gate if login else "",
            certificate.sha256 if certificate else "",
        )
        """Where clients connect."""
        self._loop = loop
        self._dial = dial
        self._login = login
        self._certificate = certificate
        self._refuse_pages = refuse_pages
        self._strangers: dict[asyncio.Task[None], None] = {}
        self._dialler = ThreadPoolExecutor(DIALLING, thread_name_prefix="gate dials")
        self._listeners = listeners
        self._tasks = Tasks(loop)
        self._open_connections = 0
        self._closed = False
        for purpose, listener in listeners.items():
            self._tasks.begin_soon(self._accept(purpose, listener))

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._open_connections

    def close(self) -> None:
        """Closes all connections at once; when it returns, nothing more reaches the VM. May be repeated.

        Raises:
            TimeoutError: The thread of all gates is stuck.
        """
        if not self._closed:
            shut(self._loop, self._shut(), "a gate")

    async def _shut(self) -> None:
        await self._tasks.end()
        for listener in self._listeners.values():
            listener.close()
        self._dialler.shutdown(wait=False, cancel_futures=True)
        self._closed = True

    async def _accept(self, purpose: str, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = await self._loop.sock_accept(listener)
            except OSError as error:  # no file descriptors left, or the other side gave up
                log.warning("a gate's connection for %s could not be taken: %s", purpose, error)
                await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            await self._tasks.begin(self._serve(purpose, near))

    async def _serve(self, purpose: str, near: socket.socket) -> None:
        """Passes bytes both ways until both sides have finished sending."""
        far: socket.socket | None = None
        in_order = counted = False
        try:
            _prepare(near)
            near_end, first = await self._admitted(near)
            if self._open_connections >= CONNECTIONS:
                raise ConnectionRefusedError(f"it has {CONNECTIONS} connections")
            self._open_connections += 1
            counted = True
            dialled = await self._loop.run_in_executor(self._dialler, self._dial_unless_closed, purpose)
            far = dialled.socket if isinstance(dialled, Dialled) else dialled
            far.setblocking(False)
            for end in (near, far):
                if end.family != socket.AF_UNIX:  # a socketpair with a provider's own answer
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            far_end = await self._introduced(dialled)
            if first:
                await far_end.send(first)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(_pass_on(near_end, far_end))
                ways.create_task(_pass_on(far_end, near_end))
            in_order = True
        except* OSError as group:
            log.debug("a connection through a gate for %s ended: %s", purpose, group.exceptions[0])
        except* Exception as group:  # noqa: BLE001 (the border to providers: one connection fails, not the gate)
            log.warning("a gate could not connect to the VM's %s port: %s", purpose, group.exceptions[0])
        finally:
            self._open_connections -= counted
            finish = socket.socket.close if in_order else drop
            finish(near)
            if far is not None:
                finish(far)

    async def _admitted(self, near: socket.socket) -> tuple[End, bytes]:
        """Returns the client's end, and the data that came after its token.

        Raises:
            OSError: The token is wrong, or did not come in time.
        """
        plain = PlainEnd(self._loop, near)
        if self._login is None and self._certificate is None:
            return OriginCheck(plain, near.getsockname()[1]) if self._refuse_pages else plain, b""
        task = asyncio.current_task()
        if task is not None:
            self._strangers[task] = None
            if len(self._strangers) > STRANGERS:
                next(iter(self._strangers)).cancel()
        try:
            async with asyncio.timeout(ADMISSION_SECONDS):
                end: End = plain
                if self._certificate is not None:
                    end = TLSEnd(plain, self._certificate.context, server=True)
                    await end.shake_hands()
                return end, await self._after_token(end)
        finally:
            if task is not None:
                self._strangers.pop(task, None)

    async def _after_token(self, end: End) -> bytes:
        if self._login is None:
            return b""
        said = b""
        while len(said) < LINE_BYTES:
            piece = await end.receive()
            if not piece:
                raise ConnectionAbortedError("it ended before it sent a token")
            said += piece
        if not opens(said[:LINE_BYTES], self._login.key, self._login.gate):
            raise ConnectionRefusedError("it does not know the lease's token")
        return said[LINE_BYTES:]

    async def _introduced(self, dialled: socket.socket | Dialled) -> End:
        """Returns the VM's end, or another gate's after sending it the token.

        Raises:
            OSError: That gate is not the expected one.
        """
        if isinstance(dialled, socket.socket):
            return PlainEnd(self._loop, dialled)
        end: End = PlainEnd(self._loop, dialled.socket)
        async with asyncio.timeout(ADMISSION_SECONDS):
            if dialled.certificate:
                end = TLSEnd(PlainEnd(self._loop, dialled.socket), client_context(), server=False)
                await end.shake_hands()
                if hash_of(end.certificate) != dialled.certificate:
                    raise ConnectionRefusedError("the gate has another certificate than its lease says")
            if dialled.first:
                await end.send(dialled.first)
        return end

    def _dial_unless_closed(self, purpose: str) -> socket.socket | Dialled:
        far = self._dial(purpose)
        if self._tasks.ended:
            (far.socket if isinstance(far, Dialled) else far).close()
            raise ConnectionAbortedError("the gate was closed")
        return far


def _prepare(near: socket.socket) -> None:
    near.setblocking(False)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # notices a client that vanished
    for option, seconds in _KEEPALIVE:
        near.setsockopt(socket.IPPROTO_TCP, option, seconds)


async def _pass_on(source: End, target: End) -> None:
    """Passes on one direction's bytes. A slow reader delays only this direction, and holds only a chunk of memory."""
    while data := await source.receive():
        await target.send(data)
    await target.say_last()
