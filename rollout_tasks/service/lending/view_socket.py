"""The WebSocket of a view: a browser's noVNC sees a lease's desktop, and does with it what its view allows.

What the desktop sends is passed on as it comes: the page that reads it may do nothing but show it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress

from starlette.websockets import WebSocket

from rollout_tasks.service.lending.desktop_connection import abort, connected_through_gate, relay
from rollout_tasks.service.lending.desktop_views import MOST_SOCKETS, PURPOSE, DesktopViews, View
from rollout_tasks.service.lending.guest_socket import GuestSocket, opened
from rollout_tasks.service.lending.http_requests import problem
from rollout_tasks.service.lending.refusal import Refusal
from rollout_tasks.service.lending.view_routes import PATH as VIEW_PATH
from rollout_tasks.service.lending.view_routes import check_origin, view_of
from rollout_tasks.service.lending.viewer_messages import RFBError, ViewerMessages

logger = logging.getLogger(__name__)

PATH = f"{VIEW_PATH}/socket"
_CONNECT_SECONDS = 20.0
"""The desktop's VNC server is started by the first who asks."""
_LOOK_SECONDS = 0.2
_RELEASE_SECONDS = 1.0


class ViewSocket:
    """Serves the WebSockets of all views."""

    def __init__(self, views: DesktopViews) -> None:
        """Takes the views."""
        self._views = views

    async def serve(self, socket: WebSocket) -> None:
        """Shows a desktop until either side ends it, or the view is over."""
        try:
            check_origin(socket)
            view = view_of(socket, self._views)
            if view.sockets >= MOST_SOCKETS:
                raise Refusal(429, f"the view is open {MOST_SOCKETS} times, which is the most: close one first")
        except Refusal as refusal:
            await socket.send_denial_response(problem(refusal))
            return
        view.sockets += 1  # before it is connected: many may ask at once
        try:
            await self._serve_counted(view, socket)
        finally:
            view.sockets -= 1

    async def _serve_counted(self, view: View, socket: WebSocket) -> None:
        try:
            async with _connected(view) as guest:
                await socket.accept()
                desktop = _ViewedDesktop(view, guest)
                try:
                    await relay(socket, desktop, desktop, self._over(view), lambda: view.lent.session.closed)
                finally:
                    await desktop.release_held()
        except Refusal as refusal:
            await socket.send_denial_response(problem(refusal))

    async def _over(self, view: View) -> None:
        """Returns when the view ends: with its lease, its token, or its time."""
        with suppress(Refusal):
            while True:
                self._views.check(view)
                await asyncio.sleep(_LOOK_SECONDS)


class _ViewedDesktop:
    """A desktop as one view may use it."""

    def __init__(self, view: View, guest: GuestSocket) -> None:
        self._view = view
        self._guest = guest
        self._messages = ViewerMessages(view.may_help, view.helped)

    async def read(self, most: int, /) -> bytes:
        """Returns what the desktop sent."""
        content = await self._guest.read(most)
        with self._logging_errors():
            self._messages.read_greeting(content)
        return content

    def write(self, content: bytes, /) -> None:
        """Sends what of this the desktop may get."""
        with self._logging_errors():
            self._guest.write(self._messages.allowed(content))

    async def drain(self) -> None:
        """Waits until the desktop takes more."""
        await self._guest.drain()

    async def release_held(self) -> None:
        """Releases the keys and buttons that the person holds down."""
        with suppress(OSError):  # a timeout, too: the desktop may be gone
            async with asyncio.timeout(_RELEASE_SECONDS):
                self._guest.write(self._messages.release_held())
                await self._guest.drain()

    @contextmanager
    def _logging_errors(self) -> Iterator[None]:
        """Logs why what came ends the view."""
        try:
            yield
        except RFBError as error:
            logger.warning("a view of lease %s ends: %s", self._view.lent.id, error)
            raise


@asynccontextmanager
async def _connected(view: View) -> AsyncIterator[GuestSocket]:
    endpoint = view.lent.session.endpoint
    assert endpoint is not None  # noqa: S101 - the view would not have begun
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await connected_through_gate(endpoint, PURPOSE)
            with _closing_on_failure(writer):
                guest = await opened(reader, writer)
    except OSError as error:  # a timeout, too
        raise Refusal(503, "the desktop's VNC server does not answer") from error
    with closing(writer):
        try:
            yield guest
        finally:
            if view.lent.session.closed:
                abort(writer)


@contextmanager
def _closing_on_failure(writer: asyncio.StreamWriter) -> Iterator[None]:
    try:
        yield
    except BaseException:
        writer.close()
        raise
