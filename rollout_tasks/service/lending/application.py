"""The desktop service as an ASGI application: leases, their WebSockets and views, MCP, the older routes, the document of routes."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp

from rollout_tasks.http_services.client_presence import ClientPresence
from rollout_tasks.http_services.token_holders import TokenHolders
from rollout_tasks.service.lending.desktop_views import DesktopViews
from rollout_tasks.service.lending.emulator_routes import EmulatorRoutes
from rollout_tasks.service.lending.http_requests import answering, json_reply, when_http_refuses
from rollout_tasks.service.lending.lease_calls import LeaseCalls
from rollout_tasks.service.lending.lease_routes import LeaseRoutes
from rollout_tasks.service.lending.lease_socket import PATH, LeaseSocket
from rollout_tasks.service.lending.mcp_address import PATH as MCP_PATH
from rollout_tasks.service.lending.mcp_address import McpAddress
from rollout_tasks.service.lending.novnc_files import NoVNCFiles, novnc_folders
from rollout_tasks.service.lending.openapi import document, routes
from rollout_tasks.service.lending.places import WaitingPlaces
from rollout_tasks.service.lending.port_socket import PATH as PORT_PATH
from rollout_tasks.service.lending.port_socket import PortSocket
from rollout_tasks.service.lending.refusal import Refusal
from rollout_tasks.service.lending.view_routes import ViewRoutes
from rollout_tasks.service.lending.view_socket import PATH as VIEW_PATH
from rollout_tasks.service.lending.view_socket import ViewSocket

DOCUMENT_PATH = "/openapi.json"


def served(
    calls: LeaseCalls, holders: TokenHolders, places: WaitingPlaces | None, *, allow_help: bool = False
) -> ASGIApp:
    """Returns the application.

    Args:
        calls: Carries out what clients do with leases.
        holders: Who may use it.
        places: The queue of the pool; None if desktops are not of a pool.
        allow_help: Whether people who look at desktops may use them, if the lease's holder lets them.
    """
    views = DesktopViews(holders)
    view_routes = ViewRoutes(calls, holders, views, NoVNCFiles(novnc_folders()), allow_help=allow_help)
    operations = [
        *LeaseRoutes(calls, holders).operations(),
        *view_routes.operations(),
        *EmulatorRoutes(calls, holders, places).operations(),
    ]
    described = document(operations)
    mcp_address = McpAddress(calls, holders)

    async def show_document(_request: Request) -> Response:
        return json_reply(200, described)

    application = Starlette(
        routes=[
            *routes(operations),
            Route(DOCUMENT_PATH, answering(show_document), methods=["GET"]),
            *(Route(path, answering(_not_a_socket), methods=["GET"]) for path in (PATH, PORT_PATH, VIEW_PATH)),
            Route(MCP_PATH, mcp_address, methods=["POST"]),
            *view_routes.routes(),
            WebSocketRoute(PATH, LeaseSocket(calls, holders).serve),
            WebSocketRoute(PORT_PATH, PortSocket(calls, holders).serve),
            WebSocketRoute(VIEW_PATH, ViewSocket(views).serve),
        ],
        exception_handlers={HTTPException: when_http_refuses},
        lifespan=mcp_address.lifespan,
    )
    application.router.redirect_slashes = False  # a redirect would be answered without a token
    return ClientPresence(application)


async def _not_a_socket(_request: Request) -> Response:
    raise Refusal(400, "this address is a WebSocket's; the service needs the package websockets for it")
