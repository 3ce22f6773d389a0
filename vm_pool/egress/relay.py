"""The relay for a guest's outgoing connections: checks each one when it is made, and connects to a public address.

All guests of a process share one event loop in one thread; each guest has an `Outlet` with its own limits.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from vm_pool.descriptor_limit import raise_descriptor_limit
from vm_pool.egress.addresses import NotPublic, Resolve, public_addresses
from vm_pool.egress.dns_answers import LONGEST_QUESTION, StandIns, answer
from vm_pool.egress.policy import NetworkPolicy
from vm_pool.event_loop import LoopThread, Tasks, drop, shut

log = logging.getLogger(__name__)

CONNECTIONS = 256
"""For each guest at a time; further ones are refused."""
GUEST_BYTES = 16 << 30
"""How many bytes one guest may send and receive until it is reset."""
CONNECT_SECONDS = 15.0
IDLE_SECONDS = 900.0
"""A connection without traffic in either direction for this long is closed."""
LOOKUPS = 8
"""How many names of one guest are resolved at a time."""
_CHUNK = 1 << 16
_ORIGINAL_DESTINATION = 80
"""Linux's socket option for a connection's destination before the redirect; the same number for IPv4 and IPv6."""
_SOL_IPV6 = 41


@dataclass(frozen=True, slots=True)
class Listeners:
    """Sockets in a guest's network namespace that receive everything it sends."""

    streams: tuple[socket.socket, ...]
    datagrams: tuple[socket.socket, ...]
    """For DNS."""

    def close(self) -> None:
        """Closes them all."""
        for one in (*self.streams, *self.datagrams):
            one.close()


class Relay:
    """Runs the outlets in its own thread, which ends with the last of them.

    Args:
        resolve: Resolves names; default: as this machine does.
    """

    def __init__(self, resolve: Resolve | None = None) -> None:
        self._resolve = resolve
        self._thread = LoopThread("egress")
        self._lock = threading.Lock()
        self._outlets: set[Outlet] = set()

    def open(self, listeners: Listeners, policy: NetworkPolicy) -> Outlet:
        """Gives a guest internet access; also raises this process's limit of descriptors: each connection takes two."""
        raise_descriptor_limit()
        with self._lock:
            outlet = Outlet(self._thread.loop, listeners, policy, self._resolve, self._forget)
            self._outlets.add(outlet)
        return outlet

    def _forget(self, outlet: Outlet) -> None:
        with self._lock:
            if outlet in self._outlets:
                self._outlets.remove(outlet)
                if not self._outlets:
                    self._thread.close()


class Outlet:
    """One guest's internet access. Made by `Relay.open`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listeners: Listeners,
        policy: NetworkPolicy,
        resolve: Resolve | None,
        forget: Callable[[Outlet], None],
    ) -> None:
        self._loop = loop
        self._forget = forget
        self._listeners = listeners
        self._policy = policy
        self._resolve = resolve
        self._names = StandIns()
        self._names_lock = threading.Lock()
        self._tasks = Tasks(loop)
        self._lookups = ThreadPoolExecutor(LOOKUPS, thread_name_prefix="egress looks up")
        self._connections = 0
        self._bytes_left = GUEST_BYTES
        self._warned = False
        self._closed = False
        for listener in listeners.streams:
            self._tasks.begin_soon(self._accept(listener))
        for listener in listeners.datagrams:
            self._tasks.begin_soon(self._answer_names(listener))

    def close(self) -> None:
        """Closes everything at once. May be repeated.

        Raises:
            TimeoutError: The thread of all outlets is stuck.
        """
        if not self._closed:
            shut(self._loop, self._shut(), "an outlet")
        self._forget(self)

    async def _shut(self) -> None:
        await self._tasks.end()
        self._listeners.close()
        self._lookups.shutdown(wait=False, cancel_futures=True)
        self._closed = True

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = await self._loop.sock_accept(listener)
            except OSError as error:  # no file descriptors left, or the other side gave up
                log.log(
                    logging.DEBUG if self._warned else logging.WARNING, "a guest's connection was not taken: %s", error
                )
                self._warned = True  # a guest could fill the log
                await asyncio.sleep(0.1)
                continue
            near.setblocking(False)
            if self._connections >= CONNECTIONS or self._bytes_left <= 0:
                drop(near)
                continue
            self._connections += 1
            await self._tasks.begin(self._serve(near))

    async def _serve(self, near: socket.socket) -> None:
        """Connects a guest to its destination, if allowed, and passes bytes both ways."""
        far: socket.socket | None = None
        in_order = False
        try:
            host, port = self._destination(near)
            far = await self._connect(host, port)
            for side in (near, far):  # small pieces go on at once, and do not wait for the last one's receipt
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(IDLE_SECONDS) as idle, asyncio.TaskGroup() as ways:
                ways.create_task(self._pass_on(near, far, idle))
                ways.create_task(self._pass_on(far, near, idle))
            in_order = True
        except* (OSError, TimeoutError) as group:
            log.debug("a guest's connection ended: %s", group.exceptions[0])
        finally:
            self._connections -= 1
            for end in (near, far):
                if end is not None:
                    (socket.socket.close if in_order else drop)(end)

    def _destination(self, near: socket.socket) -> tuple[str, int]:
        """Returns a connection's destination: a name that the guest had resolved, or an address; and the port.

        Raises:
            NotPublic: The guest may not go there.
        """
        address, port = original_destination(near)
        if (address, port) == near.getsockname()[:2]:
            raise NotPublic("a guest connected to its own way out")
        with self._names_lock:
            host = self._names.name_of(address) or address
        if not self._policy.allows(host):
            raise NotPublic(f"a guest may not reach {host}")
        return host, port

    async def _connect(self, host: str, port: int) -> socket.socket:
        addresses = await self._loop.run_in_executor(self._lookups, public_addresses, host, self._resolve)
        failure: OSError = NotPublic(f"{host} has no address on the internet")
        for address in addresses:
            far = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
            far.setblocking(False)
            try:
                async with asyncio.timeout(CONNECT_SECONDS):  # wait_for may lose a cancellation (Python 3.11)
                    await self._loop.sock_connect(far, (address, port))
                return far
            except (OSError, TimeoutError) as error:
                far.close()
                failure = OSError(f"{host} port {port}: {error}")
            except BaseException:
                far.close()
                raise
        raise failure

    async def _pass_on(self, source: socket.socket, target: socket.socket, idle: asyncio.Timeout) -> None:
        """Passes on the bytes of one direction; each chunk, in either direction, postpones the idle timeout."""
        while data := await self._loop.sock_recv(source, _CHUNK):
            idle.reschedule(self._loop.time() + IDLE_SECONDS)
            self._bytes_left -= len(data)
            if self._bytes_left <= 0:
                raise ConnectionAbortedError("the guest has sent and received all that it may")
            await self._loop.sock_sendall(target, data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    async def _answer_names(self, listener: socket.socket) -> None:
        pending_lookups = 0
        while True:
            try:
                query, sender = await self._loop.sock_recvfrom(listener, LONGEST_QUESTION + 1)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            if pending_lookups >= CONNECTIONS:
                continue  # the guest will ask again

            async def look_up(query: bytes = query, sender: Any = sender) -> None:
                nonlocal pending_lookups
                try:
                    reply = await self._loop.run_in_executor(self._lookups, answer, query, self._find)
                    if reply is not None:
                        await self._loop.sock_sendto(listener, reply, sender)
                except OSError as error:
                    log.debug("a guest's question could not be answered: %s", error)
                finally:
                    pending_lookups -= 1

            pending_lookups += 1
            await self._tasks.begin(look_up())

    def _find(self, name: str) -> str | None:
        """Returns the stand-in address of a name; None if the guest may not reach it or no public host has it."""
        if not self._policy.allows(name):
            return None
        try:
            public_addresses(name, self._resolve)
        except NotPublic:
            return None
        with self._names_lock:
            return self._names.address_of(name)


def original_destination(near: socket.socket) -> tuple[str, int]:
    """Returns the address and port that a connection was going to before the kernel redirected it.

    Raises:
        OSError: The kernel does not know: the connection was not redirected.
    """
    if near.family == socket.AF_INET6:
        raw = near.getsockopt(_SOL_IPV6, _ORIGINAL_DESTINATION, 28)
        port, address = struct.unpack_from("!2xH4x16s", raw)
        return socket.inet_ntop(socket.AF_INET6, address), port
    raw = near.getsockopt(socket.SOL_IP, _ORIGINAL_DESTINATION, 16)
    port, address = struct.unpack_from("!2xH4s", raw)
    return socket.inet_ntop(socket.AF_INET, address), port
