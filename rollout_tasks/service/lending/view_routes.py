"""The routes of views: the holder of a token asks for one, and a browser gets its page, hands its ticket in, and loads scripts.

The page is the same for everybody and says nothing. What a view shows takes its cookie, which only its own page can send.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from rollout_tasks.http_services.token_holders import TokenHolder, TokenHolders
from rollout_tasks.service.lending import messages
from rollout_tasks.service.lending.desktop_views import TICKET_SECONDS, VIEW_SECONDS, DesktopViews, View
from rollout_tasks.service.lending.http_requests import (
    Handler,
    answering,
    holder_of,
    json_reply,
    message_of,
    object_in,
    read_as,
)
from rollout_tasks.service.lending.lease_calls import LeaseCalls
from rollout_tasks.service.lending.novnc_files import NoVNCFiles
from rollout_tasks.service.lending.openapi import Operation
from rollout_tasks.service.lending.refusal import Refusal
from rollout_tasks.service.lending.unknown_bodies import UnknownBodies

PATH = "/views/{view_id}"
_COOKIE = "view-{view_id}"
"""Each view's has its own name: another page of this host cannot know it, and so not put another value before it."""
_TICKET_BODY = 1 << 10
"""Bytes of a body of which it is not known who sends it."""
_PAGE = Path(__file__).with_name("view_page")
_PAGE_FILES = {
    "": ("view.html", "text/html"),
    "view.js": ("view.js", "text/javascript"),
    "view.css": ("view.css", "text/css"),
}
_HEADERS = {
    # No script but those of this service, no other host, no page around it. Cursors and JPEG pictures come as data: addresses.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class ViewRoutes:
    """The handlers."""

    def __init__(
        self, calls: LeaseCalls, holders: TokenHolders, views: DesktopViews, novnc: NoVNCFiles, *, allow_help: bool
    ) -> None:
        """Takes what it serves.

        Args:
            calls: The leases.
            holders: Who may use them.
            views: The views of their desktops.
            novnc: Shows them in a browser.
            allow_help: Whether holders may let people use desktops.
        """
        self._allow_help = allow_help
        self._calls = calls
        self._holders = holders
        self._views = views
        self._novnc = novnc
        self._tickets = UnknownBodies(_TICKET_BODY)

    def operations(self) -> list[Operation]:
        """Returns what programs ask for."""
        return [
            Operation(
                *("POST", "/leases/{lease_id}/view", answering(self._begin), "Get an address to see the desktop at"),
                replies={201: messages.ViewAddress},
                body=messages.ViewRequest,
                refusals=(404, 409, 410, 501),
            )
        ]

    def routes(self) -> Sequence[BaseRoute]:
        """Returns what browsers ask for."""
        pages = [Route(f"{PATH}/{name}", _shown(_page(*file)), methods=["GET"]) for name, file in _PAGE_FILES.items()]
        return [
            *pages,
            Route(f"{PATH}/ticket", _shown(self._exchange), methods=["POST"]),
            Route(f"{PATH}/state", _shown(self._state), methods=["GET"]),
            Route(f"{PATH}/novnc/{{name:path}}", _shown(self._script), methods=["GET"]),
        ]

    async def _begin(self, request: Request) -> Response:
        holder = holder_of(request, self._holders)
        with self._calls.requests.counted(holder):
            return await self._begun(request, holder)

    async def _begun(self, request: Request, holder: TokenHolder) -> Response:
        lent = self._calls.book.find(holder, request.path_params["lease_id"])
        sent = await message_of(request, messages.ViewRequest, holder.owner)
        self._calls.check_fence(lent, sent.fence)
        if sent.help and not self._allow_help:
            allowing = "rollouts desktops serve --allow-help lets them use them"
            raise Refusal(403, f"people may only look at this service's desktops: {allowing}")
        self._novnc.folder()
        _check_sockets()
        view, ticket = self._views.begin(lent, holder, may_help=sent.help)
        path = f"{PATH.format(view_id=view.id)}/#{ticket}"
        given = messages.ViewAddress(
            path=path, help=view.help, ticket_seconds=TICKET_SECONDS, view_seconds=VIEW_SECONDS
        )
        return json_reply(201, given, Cache_Control="no-store")

    async def _exchange(self, request: Request) -> Response:
        secure = check_origin(request)
        view_id = request.path_params["view_id"]
        self._views.unopened(view_id)  # before the body is read: anybody may send one
        sent = read_as(messages.TicketRequest, object_in(await self._tickets.read(request)))
        cookie = self._views.exchange(view_id, sent.ticket)
        reply = Response(status_code=204)
        reply.set_cookie(
            *(_COOKIE.format(view_id=view_id), cookie),
            max_age=int(VIEW_SECONDS),
            path=PATH.format(view_id=view_id),
            secure=secure,
            httponly=True,
            samesite="strict",
        )
        return reply

    async def _state(self, request: Request) -> Response:
        view = view_of(request, self._views)
        return json_reply(200, messages.ViewState(lease_id=view.lent.id, question=_question(view), help=view.help))

    async def _script(self, request: Request) -> Response:
        view_of(request, self._views)
        content = await run_in_threadpool(self._novnc.script, request.path_params["name"])
        return Response(content, media_type="text/javascript")


def view_of(connection: HTTPConnection, views: DesktopViews) -> View:
    """Returns whose view a browser's request is of, by its cookie.

    Raises:
        Refusal: It has none (401), or another's (403), or the view is over (410).
    """
    view_id = connection.path_params["view_id"]
    cookie = connection.cookies.get(_COOKIE.format(view_id=view_id))
    if not cookie:
        raise Refusal(401, "open the address that rollouts desktops view prints: it works once")
    return views.find(view_id, cookie)


def check_origin(connection: HTTPConnection) -> bool:
    """Raises unless a page of this service sent a request: any page may open a WebSocket to any host.

    Returns:
        Whether the page came with TLS.

    Raises:
        Refusal: It was another host's page, or none (403).
    """
    origin, host = connection.headers.get("origin", ""), connection.headers.get("host", "")
    scheme, _, named = origin.partition("://")
    if scheme not in ("http", "https") or not named or _named(scheme, named) != _named(scheme, host):
        raise Refusal(
            403, "the request comes from a page of another host; a proxy has to pass the header Host on as it was sent"
        )
    return scheme == "https"


def _named(scheme: str, host: str) -> tuple[str | None, int | None]:
    try:
        parts = urlsplit(f"{scheme}://{host}")
        return parts.hostname, parts.port or {"http": 80, "https": 443}[scheme]
    except ValueError:
        return None, None


def _question(view: View) -> str:
    return view.lent.session.order.item.question


def _check_sockets() -> None:
    try:
        import websockets.client  # noqa: F401 - here: the service runs without this package, too
    except ImportError as error:
        raise Refusal(
            501, "the service needs the package websockets to show desktops: uv pip install websockets"
        ) from error


def _page(name: str, media_type: str) -> Handler:
    content = (_PAGE / name).read_bytes()

    async def show(_request: Request) -> Response:
        return Response(content, media_type=media_type)

    return show


def _shown(handler: Handler) -> Handler:
    """Returns a handler whose replies, refusals too, tell browsers what they may not do."""
    answer = answering(handler)

    async def show(request: Request) -> Response:
        reply = await answer(request)
        reply.headers.update(_HEADERS)
        return reply

    return show
