"""The routes of the older service that lent desktops as emulators, field for field, over the same leases.

The token comes as a Bearer header, in the JSON body or in the query. Differences: only an operator's token sees and ends others'
desktops and sets limits, and no token is shown to anybody but whoever sent it, since none is stored.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

import psutil
import redis
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from rollout_tasks.errors import UserError
from rollout_tasks.http_services.token_guard import tokens_of
from rollout_tasks.http_services.token_holders import TokenHolder, TokenHolders, name_in
from rollout_tasks.service.lending import emulator_messages as messages
from rollout_tasks.service.lending.http_requests import (
    Handler,
    answering,
    body_of,
    headers_of,
    json_reply,
    object_in,
    read_as,
)
from rollout_tasks.service.lending.lease_book import LentDesktop
from rollout_tasks.service.lending.lease_calls import LeaseCalls
from rollout_tasks.service.lending.openapi import Operation
from rollout_tasks.service.lending.places import WaitingPlaces
from rollout_tasks.service.lending.refusal import Refusal
from rollout_tasks.service.lending.unknown_bodies import UnknownBodies
from rollout_tasks.unicode_text import one_line

PURPOSES = {"vnc_port": "vnc", "chromium_port": "chromium", "vlc_port": "vlc", "server_port": "control"}
_UNKNOWN_BODY = 4 << 10
"""Bytes of a body of which it is not known yet who sends it: the token is in it."""


@dataclass(frozen=True, slots=True)
class _Asker:
    """Who sent a request."""

    holder: TokenHolder
    token: str
    """As it was sent."""
    sent: dict[str, object]
    """The body."""


_AskerHandler = Callable[[Request, _Asker], Awaitable[Response]]


class EmulatorRoutes:
    """The handlers."""

    def __init__(self, calls: LeaseCalls, holders: TokenHolders, places: WaitingPlaces | None) -> None:
        """Takes what carries the calls out, who may make them, and the pool if there is one."""
        self._calls = calls
        self._holders = holders
        self._places = places
        self._began = time.monotonic()
        self._unknown = UnknownBodies(_UNKNOWN_BODY)

    def operations(self) -> list[Operation]:
        """Returns what is served."""
        start = self._start
        return [
            self._own(
                *("GET", "/start_emulator", start, "Start an emulator", messages.Started),
                safe=False,
            ),
            self._own(
                *("POST", "/start_emulator", start, "Start an emulator", messages.Started),
                body=messages.StartRequest,
            ),
            self._own(
                *("POST", "/stop_emulator", self._stop, "Stop an emulator", messages.Said),
                body=messages.StopRequest,
                refusals=(404,),
            ),
            self._own(
                *("DELETE", "/emulators/{emulator_id}", self._delete, "Stop an emulator", messages.Said),
                refusals=(404,),
            ),
            self._own("GET", "/status", self._status, "How busy the service is", messages.ServiceStatus),
            self._own("GET", "/tokens", self._tokens, "What each token uses", messages.TokenUses),
            self._own("GET", "/emulators", self._list, "List emulators", messages.Emulators),
            self._own("GET", "/emulators_by_token", self._by_token, "List a token's emulators", messages.EmulatorIds),
            self._own(
                *("GET", "/emulator_status/{emulator_id}", self._one, "How one emulator is", messages.EmulatorStatus),
                refusals=(404,),
            ),
            Operation(
                *("POST", "/set_token_limit", answering(self._set_limit, _shown), "Change a token's quota"),
                replies={200: messages.Said},
                body=messages.LimitRequest,
                problem=messages.EmulatorProblem,
            ),
            Operation(
                *("GET", "/ping", answering(_ping, _shown), "Say that the service answers"),
                replies={200: messages.Pong},
                needs_token=False,
                problem=messages.EmulatorProblem,
            ),
        ]

    def _own(
        self,
        method: str,
        path: str,
        handler: _AskerHandler,
        summary: str,
        reply: type[BaseModel],
        *,
        body: type[BaseModel] | None = None,
        refusals: Sequence[int] = (),
        safe: bool = True,
    ) -> Operation:
        """Returns an operation for whoever sends a token. Each reads the body, where the token may be."""
        return Operation(
            *(method, path, self._for_asker(handler), summary),
            replies={200: reply},
            body=body,
            query=messages.TokenQuery,
            refusals=(400, 408, 413, *refusals),
            problem=messages.EmulatorProblem,
            safe=safe,
        )

    # The handlers

    async def _start(self, _request: Request, asker: _Asker) -> Response:
        lent = await self._calls.emulator(asker.holder, str(uuid.uuid4()))
        data = messages.StartedEmulator(emulator_id=lent.id, token=asker.token, **_ports(lent))
        return json_reply(200, messages.Started(message="Emulator started successfully", code=0, data=data))

    async def _stop(self, _request: Request, asker: _Asker) -> Response:
        return await self._stopped(asker, read_as(messages.StopRequest, asker.sent).emulator_id)

    async def _delete(self, request: Request, asker: _Asker) -> Response:
        return await self._stopped(asker, request.path_params["emulator_id"])

    async def _stopped(self, asker: _Asker, emulator_id: str) -> Response:
        lent = self._known(emulator_id, asker.holder)
        await self._calls.release(lent)
        return json_reply(200, messages.Said(message="Emulator stopped successfully", code=0))

    async def _one(self, request: Request, asker: _Asker) -> Response:
        try:
            lent = self._known(request.path_params["emulator_id"], asker.holder)
        except Refusal as refusal:
            if refusal.status != 404:
                raise
            body = messages.EmulatorProblem(message=refusal.sentence, code=refusal.status, status="not_found")
            return json_reply(refusal.status, body)
        shown = self._shown_emulator(lent, asker).model_dump(exclude={"start_time"})
        return json_reply(200, messages.EmulatorStatus(status="running", **shown))

    async def _list(self, request: Request, asker: _Asker) -> Response:
        lent = self._emulators(asker, request.query_params.get("token"))
        return json_reply(200, messages.Emulators([self._shown_emulator(one, asker) for one in lent]))

    async def _by_token(self, request: Request, asker: _Asker) -> Response:
        lent = self._emulators(asker, request.query_params.get("token", asker.token))
        return json_reply(200, messages.EmulatorIds([one.id for one in lent]))

    async def _tokens(self, _request: Request, asker: _Asker) -> Response:
        uses = {name: self._use(holder) for name, holder in self._seen_by(asker).items()}
        return json_reply(200, messages.TokenUses(uses))

    async def _status(self, _request: Request, asker: _Asker) -> Response:
        views = []
        for name, holder in self._seen_by(asker).items():
            use = self._use(holder)
            available = max(0, use.limit - use.current)
            views.append(messages.TokenView(token=name, current=use.current, limit=use.limit, available=available))
        status = messages.ServiceStatus(
            uptime_seconds=int(time.monotonic() - self._began),
            cpu_percent=psutil.cpu_percent(),
            memory_percent=psutil.virtual_memory().percent,
            total_containers_for_image=await self._places.vms() if self._places else None,
            total_emulators=sum(one.emulator for one in self._calls.book.going_on()),
            tokens=views,
        )
        return json_reply(200, status)

    async def _set_limit(self, request: Request) -> Response:
        """Takes the asker's token from the header alone: the one in the body says whose limit it is."""
        asker = self._asker([one.decode("latin-1") for one in tokens_of(request.scope) if one], {})
        if not asker.holder.operator:
            raise Refusal(403, "Forbidden: only an operator's token sets limits")
        with self._calls.requests.counted(asker.holder):
            wanted = read_as(messages.LimitRequest, object_in(await body_of(request, asker.holder.owner)))
        user = self._named(wanted.token)
        if user is None or user.operator:
            raise Refusal(400, "Unknown token. Make it with: rollouts desktops token make")
        try:
            await run_in_threadpool(partial(self._holders.set_quota, user.name, wanted.limit))
        except UserError as error:
            raise Refusal(400, str(error)) from error
        except redis.RedisError as error:
            raise Refusal(503, f"Redis does not answer: {error}") from error
        return json_reply(200, messages.Said(message=f"Token of {user.name} limit set to {wanted.limit}", code=0))

    # What they share

    def _for_asker(self, handler: _AskerHandler) -> Handler:
        async def answer(request: Request) -> Response:
            query = read_as(messages.TokenQuery, request.query_params)
            in_head = [one.decode("latin-1") for one in tokens_of(request.scope) if one]
            in_query = [query.token.strip()] if query.token and query.token.strip() else []
            if in_head or query.token:  # judged before a body is read
                early = self._asker([*in_head, *in_query], {})
                with self._calls.requests.counted(early.holder):
                    sent = object_in(await body_of(request, early.holder.owner))
                    asker = self._named_in(in_head, sent, in_query)
                    if asker.holder.owner == early.holder.owner:
                        return await handler(request, asker)
            else:
                asker = self._named_in([], object_in(await self._unknown.read(request)), [])
            with self._calls.requests.counted(asker.holder):
                return await handler(request, asker)

        return answering(answer, _shown)

    def _named_in(self, in_head: list[str], sent: dict[str, object], in_query: list[str]) -> _Asker:
        """Returns who sent a request, by the first token of its head, its body and its query."""
        in_body = sent.get("token")
        found = [in_body.strip()] if isinstance(in_body, str) and in_body.strip() else []
        return self._asker([*in_head, *found, *in_query], sent)

    def _asker(self, tokens: list[str], sent: dict[str, object]) -> _Asker:
        if not tokens:
            raise Refusal(401, "Token required")
        holder = self._holders.holder(tokens[0].encode("utf-8", "surrogatepass"))
        if holder is None:
            raise Refusal(403, "Unknown or unauthorized token")
        return _Asker(holder, tokens[0], sent)

    def _named(self, token: str) -> TokenHolder | None:
        """Returns who is meant by a token, or by the name of its holder."""
        holder = self._holders.holder(token.strip().encode("utf-8", "surrogatepass"))
        return holder or next((one for one in self._holders.users() if one.name == token.strip()), None)

    def _seen_by(self, asker: _Asker) -> dict[str, TokenHolder]:
        """Returns the holders whose use somebody may see, by what they are called."""
        if not asker.holder.operator:
            return {asker.token: asker.holder}
        return {one.name: one for one in self._holders.users()} | {asker.token: asker.holder}

    def _use(self, holder: TokenHolder) -> messages.TokenUse:
        going_on = self._calls.book.going_on(holder.owner)
        limit = self._calls.book.most_of(holder)
        return messages.TokenUse(
            current=len(going_on), limit=limit, emulator_count=sum(one.emulator for one in going_on)
        )

    def _emulators(self, asker: _Asker, token: str | None) -> list[LentDesktop]:
        wanted = asker.holder if token is None else self._named(token)
        if wanted is None or not (asker.holder.operator or wanted.owner == asker.holder.owner):
            return []
        everybody = asker.holder.operator and token is None
        going_on = self._calls.book.going_on(None if everybody else wanted.owner)
        return [one for one in going_on if one.emulator and one.session.ready]

    def _known(self, emulator_id: str, holder: TokenHolder) -> LentDesktop:
        for one in self._calls.book.going_on():
            if one.id == emulator_id and one.emulator and one.session.ready:
                if holder.operator or one.owner == holder.owner:
                    return one
                raise Refusal(403, "Forbidden: token does not own this emulator")
        raise Refusal(404, "Emulator not found")

    @staticmethod
    def _shown_emulator(lent: LentDesktop, asker: _Asker) -> messages.Emulator:
        began = lent.session.began
        return messages.Emulator(
            emulator_id=lent.id,
            token=asker.token if lent.owner == asker.holder.owner else name_in(lent.owner),
            start_time=began,
            duration_minutes=int((time.time() - began) / 60),
            container_id=lent.session.vm_id,
            **_ports(lent),
        )


def _ports(lent: LentDesktop) -> dict[str, int | None]:
    return {name: lent.session.ports.get(purpose) for name, purpose in PURPOSES.items()}


def _shown(refusal: Refusal) -> Response:
    # The older service has one code for whatever was sent wrongly.
    status = 400 if refusal.status == 422 else refusal.status
    return json_reply(status, {"message": one_line(refusal.sentence), "code": status}, **headers_of(refusal))


async def _ping(request: Request) -> Response:
    del request
    return json_reply(200, messages.Pong(message="pong"))
