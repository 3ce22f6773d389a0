"""The routes below `/leases`: the project's own surface."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from rollout_tasks.http_services.token_holders import TokenHolder, TokenHolders
from rollout_tasks.service.lending import messages
from rollout_tasks.service.lending.http_requests import answering, holder_of, json_reply, message_of, read_as
from rollout_tasks.service.lending.lease_book import OWNER_NAME, LentDesktop
from rollout_tasks.service.lending.lease_calls import LeaseCalls
from rollout_tasks.service.lending.openapi import Operation
from rollout_tasks.service.lending.refusal import Refusal

_PIECE = 1 << 16
_NO_LEASE = (404,)
_ON_A_LEASE = (404, 409, 410)
_BINARY = "application/octet-stream"


class _LeaseQuery(BaseModel):
    wait_seconds: Annotated[float, Field(ge=0, le=messages.LONGEST_WAIT, allow_inf_nan=False)] = 0.0


class _ObserveQuery(BaseModel):
    fence: Annotated[int, Field(ge=0, le=messages.LARGEST_FENCE)]


class LeaseRoutes:
    """The handlers."""

    def __init__(self, calls: LeaseCalls, holders: TokenHolders) -> None:
        """Takes what carries the calls out, and who may make them."""
        self._calls = calls
        self._holders = holders

    def operations(self) -> list[Operation]:
        """Returns what is served."""
        own = self._with_holder
        return [
            Operation(
                *("POST", "/leases", own(self._acquire), "Acquire a desktop"),
                replies={201: messages.Lease, 202: messages.Lease},
                body=messages.LeaseRequest,
                refusals=(404, 409, 410),
            ),
            Operation(
                *("GET", "/leases", own(self._list), "List the leases that go on"), replies={200: messages.LeaseList}
            ),
            Operation(
                *("GET", "/leases/{lease_id}", own(self._show), "Show a lease, and wait for its desktop"),
                replies={200: messages.Lease},
                query=_LeaseQuery,
                refusals=(404, 410),
            ),
            Operation(
                *("DELETE", "/leases/{lease_id}", own(self._release), "Release the desktop"),
                replies={200: messages.Released},
                refusals=(404, 410),
            ),
            Operation(
                *("POST", "/leases/{lease_id}/renew", own(self._renew), "Say that the client is still there"),
                replies={200: messages.Lease},
                body=messages.FencedRequest,
                refusals=_ON_A_LEASE,
            ),
            Operation(
                *("GET", "/leases/{lease_id}/observe", own(self._observe), "See what the desktop showed last"),
                replies={200: messages.Observed},
                query=_ObserveQuery,
                refusals=_ON_A_LEASE,
            ),
            Operation(
                *("POST", "/leases/{lease_id}/act", own(self._act), "Carry out one act"),
                replies={200: messages.Step},
                body=messages.ActRequest,
                refusals=_ON_A_LEASE,
            ),
            Operation(
                *("POST", "/leases/{lease_id}/evaluate", own(self._evaluate), "End the episode and score it"),
                replies={200: messages.End, 202: messages.Lease},
                body=messages.EvaluateRequest,
                refusals=_ON_A_LEASE,
            ),
            Operation(
                *("GET", "/leases/{lease_id}/record", own(self._record), "List the files of the episode's record"),
                replies={200: messages.Record},
                refusals=_NO_LEASE,
            ),
            Operation(
                *("GET", "/leases/{lease_id}/record/{name}", own(self._file), "Download a file of the record"),
                replies={200: _BINARY},
                refusals=_NO_LEASE,
            ),
            Operation(
                *("GET", "/items", own(self._items), "List the items that leases may play"),
                replies={200: messages.ItemList},
            ),
            Operation(
                *("GET", "/health", answering(_health), "Say that the service answers"),
                replies={200: messages.Health},
                needs_token=False,
            ),
        ]

    def _with_holder(
        self, handler: Callable[[Request, TokenHolder], Awaitable[Response]]
    ) -> Callable[..., Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            holder = holder_of(request, self._holders)
            with self._calls.requests.counted(holder):
                return await handler(request, holder)

        return answering(answer)

    async def _acquire(self, request: Request, holder: TokenHolder) -> Response:
        lent = await self._calls.acquire(holder, await message_of(request, messages.LeaseRequest, holder.owner))
        shown = await self._calls.show(lent)
        return json_reply(202 if shown.state in ("waiting", "setting_up") else 201, shown)

    async def _list(self, _request: Request, holder: TokenHolder) -> Response:
        going_on = self._calls.book.going_on(None if holder.operator else holder.owner)
        return json_reply(200, messages.LeaseList(leases=[await self._calls.show(one) for one in going_on]))

    async def _show(self, request: Request, holder: TokenHolder) -> Response:
        query = read_as(_LeaseQuery, request.query_params)
        lent = self._lent(request, holder)
        await self._calls.settle(lent, query.wait_seconds)
        return json_reply(200, await self._calls.show(lent))

    async def _release(self, request: Request, holder: TokenHolder) -> Response:
        return json_reply(200, messages.Released(released=await self._calls.release(self._lent(request, holder))))

    async def _renew(self, request: Request, holder: TokenHolder) -> Response:
        lent, sent = self._lent(request, holder), await message_of(request, messages.FencedRequest, holder.owner)
        return json_reply(200, await self._calls.renew(lent, sent.fence))

    async def _observe(self, request: Request, holder: TokenHolder) -> Response:
        lent, query = self._lent(request, holder), read_as(_ObserveQuery, request.query_params)
        return json_reply(200, await self._calls.observe(lent, query.fence))

    async def _act(self, request: Request, holder: TokenHolder) -> Response:
        began = time.perf_counter()
        lent, sent = self._lent(request, holder), await message_of(request, messages.ActRequest, holder.owner)
        step, desktop_seconds = await self._calls.act(lent, sent)
        total = 1000 * (time.perf_counter() - began)
        return json_reply(200, step, Server_Timing=f"desktop;dur={1000 * desktop_seconds:.3f}, total;dur={total:.3f}")

    async def _evaluate(self, request: Request, holder: TokenHolder) -> Response:
        try:
            lent = self._lent(request, holder)
        except Refusal as refusal:
            if refusal.status != 410:
                raise
            fence = (await message_of(request, messages.EvaluateRequest, holder.owner)).fence
            recorded = self._calls.score_on_record(holder, request.path_params["lease_id"], fence)
            if recorded is None:
                raise
            return json_reply(200, recorded)
        end = await self._calls.evaluate(lent, await message_of(request, messages.EvaluateRequest, holder.owner))
        return json_reply(202, await self._calls.show(lent)) if end is None else json_reply(200, end)

    async def _record(self, request: Request, holder: TokenHolder) -> Response:
        lease_id = request.path_params["lease_id"]
        folder = self._calls.book.record_folder(holder, lease_id)
        files = [messages.RecordFile(name=name, bytes=size) for name, size in _files_in(folder).items()]
        return json_reply(200, messages.Record(lease_id=lease_id, files=files, folder=str(folder)))

    async def _file(self, request: Request, holder: TokenHolder) -> Response:
        folder = self._calls.book.record_folder(holder, request.path_params["lease_id"])
        name = request.path_params["name"]
        size = _files_in(folder).get(name)
        if size is None:
            raise Refusal(404, "the record has no such file")
        return StreamingResponse(_content(folder / name, size), 200, {"content-length": str(size)}, media_type=_BINARY)

    async def _items(self, _request: Request, _holder: TokenHolder) -> Response:
        items = self._calls.book.sessions.items.values()
        summaries = [messages.ItemSummary(item_id=one.id, question=one.question) for one in items]
        return json_reply(200, messages.ItemList(items=summaries))

    def _lent(self, request: Request, holder: TokenHolder) -> LentDesktop:
        return self._calls.book.find(holder, request.path_params["lease_id"])


def _files_in(folder: Path) -> dict[str, int]:
    """Returns the names and sizes of a record's files, without links."""
    found = {}
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return {}
    for path in paths:
        with suppress(FileNotFoundError):  # a file that is being written gets another name
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and path.name != OWNER_NAME and not path.name.startswith("."):
                found[path.name] = status.st_size
    return found


async def _content(path: Path, size: int) -> AsyncIterator[bytes]:
    """Yields the first bytes of a file, which may be growing."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:  # noqa: PTH123 - it takes no flags
        while size > 0 and (piece := file.read(min(size, _PIECE))):
            size -= len(piece)
            yield piece


async def _health(request: Request) -> Response:
    del request
    return json_reply(200, messages.Health(status="ok"))
