"""The WebSocket of a lease, for step loops: one message for each call, `{"call": "act", "fence": ..., "key": ..., ...}`.

Each is answered by one, `{"id": ..., "status": 200, "body": {...}}`: status and body are those that HTTP would give. Calls are
carried out one after the other. The lease outlives the connection: a client may connect again within the TTL.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import Any

from pydantic import BaseModel
from starlette.websockets import WebSocket, WebSocketDisconnect

from rollout_tasks.http_services.token_holders import TokenHolders
from rollout_tasks.service.lending import messages
from rollout_tasks.service.lending.http_requests import holder_of, object_in, problem, read_as
from rollout_tasks.service.lending.lease_book import LentDesktop
from rollout_tasks.service.lending.lease_calls import LeaseCalls
from rollout_tasks.service.lending.open_sockets import OpenSockets
from rollout_tasks.service.lending.refusal import Refusal

logger = logging.getLogger(__name__)

PATH = "/leases/{lease_id}/ws"
_MOST = 8
"""Connections to one lease at a time."""
_OVER = 1000


class LeaseSocket:
    """Serves the WebSockets of all leases."""

    def __init__(self, calls: LeaseCalls, holders: TokenHolders) -> None:
        """Takes what carries the calls out, and who may make them."""
        self._calls = calls
        self._holders = holders
        self._open = OpenSockets(_MOST)

    async def serve(self, socket: WebSocket) -> None:
        """Answers one connection until its client ends it, or the lease is over and that was told."""
        try:
            holder = holder_of(socket, self._holders)
            lent = self._calls.book.find(holder, socket.path_params["lease_id"])
            with self._open.counted(lent.id, holder.owner, self._calls.book.most_of(holder)):
                await self._serve_counted(lent, socket)
        except Refusal as refusal:
            await socket.send_denial_response(problem(refusal))

    async def _serve_counted(self, lent: LentDesktop, socket: WebSocket) -> None:
        await socket.accept()
        try:
            while lent.session.end is None:
                await self._answer(socket, lent)
            await socket.close(_OVER, "the lease is over")
        except WebSocketDisconnect:
            return

    async def _answer(self, socket: WebSocket, lent: LentDesktop) -> None:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", _OVER))
        number: Any = None
        try:
            holder_of(socket, self._holders)  # which may have been revoked meanwhile
            text = message.get("text")
            if text is None:
                raise Refusal(400, "a message must be text")
            values = object_in(text.encode("utf-8", "surrogatepass"))
            number = values.get("id") if isinstance(values.get("id"), int | str) else None
            status, body = await self._carried_out(lent, read_as(messages.SocketCall, values))
        except Refusal as refusal:
            status, body = refusal.status, bytes(problem(refusal).body)
        except Exception:  # answers for the call: a client must not hang
            logger.exception("a call on lease %s failed", lent.id)
            failed = Refusal(503, "the service failed to answer; its log says why")
            status, body = failed.status, bytes(problem(failed).body)
        with suppress(RuntimeError):  # its client may have gone
            await socket.send_text(f'{{"id": {json.dumps(number)}, "status": {status}, "body": {body.decode()}}}')

    async def _carried_out(self, lent: LentDesktop, sent: messages.SocketCall) -> tuple[int, bytes]:
        given = sent.model_dump(exclude_none=True, exclude={"call", "id"})
        if sent.call == "renew":
            fenced = read_as(messages.FencedRequest, given)
            return 200, _packed(await self._calls.renew(lent, fenced.fence))
        if sent.call == "observe":
            fenced = read_as(messages.FencedRequest, given)
            return 200, await self._calls.observe(lent, fenced.fence)
        if sent.call == "act":
            step, _ = await self._calls.act(lent, read_as(messages.ActRequest, given))
            return 200, step
        end = await self._calls.evaluate(lent, read_as(messages.EvaluateRequest, given))
        return (202, _packed(await self._calls.show(lent))) if end is None else (200, _packed(end))


def _packed(message: BaseModel) -> bytes:
    return json.dumps(message.model_dump(mode="json")).encode()
