"""The WebSocket of an emulator's port: bytes to and from the desktop, for clients on machines that do not reach the port itself.

It ends with the connection to the desktop, and that with the lease.
"""

from __future__ import annotations

import asyncio

from starlette.websockets import WebSocket

from rollout_tasks.http_services.token_holders import TokenHolders
from rollout_tasks.service.lending.desktop_connection import abort, connected_through_gate, relay
from rollout_tasks.service.lending.emulator_routes import PURPOSES
from rollout_tasks.service.lending.http_requests import holder_of, problem
from rollout_tasks.service.lending.lease_book import LentDesktop
from rollout_tasks.service.lending.lease_calls import LeaseCalls
from rollout_tasks.service.lending.open_sockets import OpenSockets
from rollout_tasks.service.lending.refusal import Refusal

PATH = "/emulators/{emulator_id}/ports/{port}"
_MOST = 64
"""Connections to one desktop at a time; a browser opens many."""
_CONNECT_SECONDS = 10.0
_LOOK_SECONDS = 0.2


class PortSocket:
    """Serves the WebSockets of all emulators' ports."""

    def __init__(self, calls: LeaseCalls, holders: TokenHolders) -> None:
        """Takes whose leases they are, and who may use them."""
        self._calls = calls
        self._holders = holders
        self._open = OpenSockets(_MOST)

    async def serve(self, socket: WebSocket) -> None:
        """Carries one connection until either side ends it."""
        try:
            holder = holder_of(socket, self._holders)
            lent = self._calls.book.find(holder, socket.path_params["emulator_id"])
            # Counted before it is connected: many may ask at once.
            with self._open.counted(lent.id, holder.owner, self._calls.book.most_of(holder)):
                await self._serve_counted(lent, socket)
        except Refusal as refusal:
            await socket.send_denial_response(problem(refusal))

    async def _serve_counted(self, lent: LentDesktop, socket: WebSocket) -> None:
        reader, writer = await self._connected(lent, socket.path_params["port"])
        try:
            await socket.accept()
            await relay(socket, reader, writer, self._ended(lent, socket), lambda: lent.session.closed)
        finally:
            if lent.session.closed:
                abort(writer)
            writer.close()

    async def _ended(self, lent: LentDesktop, socket: WebSocket) -> None:
        """Returns when the lease ends, after which the desktop is somebody else's, or the token is revoked."""
        while not lent.session.closed:
            try:
                holder_of(socket, self._holders)
            except Refusal:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _connected(self, lent: LentDesktop, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        endpoint, purpose = lent.session.endpoint, PURPOSES.get(name, "")
        if endpoint is None or purpose not in endpoint.ports or not lent.emulator:
            raise Refusal(404, "there is no such port")
        if lent.session.closed:
            raise Refusal(410, "the lease is over")
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await connected_through_gate(endpoint, purpose)
        except OSError as error:  # a timeout, too
            raise Refusal(503, "nothing answers at the desktop's port") from error
