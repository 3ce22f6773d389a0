"""The client for programs with coroutines: `AsyncDesktopClient`, and the `AsyncLease` that it gives, which a task renews."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from rollout_tasks.service_client import exchanges
from rollout_tasks.service_client.answers import LeaseState, Observation, Outcome, Step
from rollout_tasks.service_client.errors import DesktopServiceError, LeaseOver
from rollout_tasks.service_client.exchanges import Exchange, Pause, WhileWaiting

_Answer = TypeVar("_Answer")


class AsyncDesktopClient:
    """A client of one service, for one event loop."""

    def __init__(self, url: str, token: str, *, patience: float = 60.0) -> None:
        """Sends nothing yet. The arguments are those of `DesktopClient`."""
        self.patience = patience
        self._http = httpx.AsyncClient(
            **exchanges.connection(url, token),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),  # each waiting lease has one
        )

    async def acquire(
        self,
        *,
        item: str | None = None,
        task: Mapping[str, Any] | None = None,
        index: int = 0,
        timeout: float = 1800.0,
        while_waiting: WhileWaiting | None = None,
    ) -> AsyncLease:
        """Acquires a desktop; see `DesktopClient.acquire`."""
        wanted = exchanges.wanted(item, task, index)
        return AsyncLease(self, await self.run(exchanges.acquired(wanted, timeout, self.patience, while_waiting)))

    @asynccontextmanager
    async def lease(self, **wanted: Any) -> AsyncIterator[AsyncLease]:
        """Acquires a desktop as `acquire` does, and releases it at the end of the context."""
        lease = await self.acquire(**wanted)
        try:
            yield lease
        finally:
            await lease.release()

    async def items(self) -> dict[str, str]:
        """Returns the questions of the service's items by their ids."""
        reply = await self.run(exchanges.answered(exchanges.Request("GET", "/items"), self.patience))
        return {one["item_id"]: one["question"] for one in reply.json()["items"]}

    async def leases(self) -> list[LeaseState]:
        """Returns the leases of the token's holder that go on; all that go on for an operator's token."""
        reply = await self.run(exchanges.answered(exchanges.Request("GET", "/leases"), self.patience))
        return [LeaseState.from_json(one) for one in reply.json()["leases"]]

    async def release(self, lease_id: str) -> None:
        """Ends a lease by its id, as one that a program left. Harmless when it is over."""
        await self.run(exchanges.released(lease_id, self.patience))

    async def view(self, lease_id: str, *, fence: int | None = None, may_help: bool = False) -> str:
        """Returns an address where a person sees a lease's desktop; see `DesktopClient.view`."""
        path = await self.run(exchanges.viewed(lease_id, fence, self.patience, may_help=may_help))
        return str(self._http.base_url).rstrip("/") + path

    async def run(self, exchange: Exchange[_Answer]) -> _Answer:
        """Carries a conversation with the service out."""
        try:
            step = next(exchange)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    step = exchange.send(None)
                    continue
                try:
                    reply = await self._http.request(
                        step.method, step.path, json=step.body, params=step.query, timeout=step.seconds
                    )
                except httpx.TransportError as error:
                    step = exchange.throw(error)
                else:
                    step = exchange.send(reply)
        except StopIteration as done:
            answer: _Answer = done.value
            return answer

    async def close(self) -> None:
        """Closes the connections; release the leases first."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncLease:
    """The right to use one desktop, renewed by a task until it is released, evaluated or over."""

    def __init__(self, client: AsyncDesktopClient, state: LeaseState) -> None:
        """Takes a lease that is ready."""
        self.state = state
        """As it was when the desktop was ready."""
        self.lost: DesktopServiceError | None = None
        """Why a renewal was refused; None while it is renewed."""
        self._client = client
        self._renewing = asyncio.create_task(self._renew(), name=f"lease {state.lease_id}")
        self._ended = False

    async def observe(self) -> Observation:
        """Returns what the desktop showed last."""
        return await self._client.run(exchanges.observed(self.state, self._client.patience))

    async def act(self, name: str, arguments: Mapping[str, Any] | None = None) -> Step:
        """Calls one of the tools; see `Lease.act`."""
        return await self._client.run(exchanges.acted(self.state, name, arguments or {}, self._client.patience))

    async def view(self, *, may_help: bool = False) -> str:
        """Returns an address where a person sees the desktop; see `Lease.view`."""
        return await self._client.view(self.state.lease_id, fence=self.state.fence, may_help=may_help)

    async def evaluate(self, *, timeout: float = 1800.0) -> Outcome:
        """Ends the episode, scores it, and gives the desktop back."""
        outcome = await self._client.run(exchanges.evaluated(self.state, self._client.patience, timeout))
        self._end()
        return outcome

    async def release(self) -> None:
        """Gives the desktop back, whatever it does. Harmless when repeated."""
        if not self._ended:
            self._end()
            await self._client.run(exchanges.released(self.state.lease_id, self._client.patience))

    def _end(self) -> None:
        self._ended = True
        self._renewing.cancel()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self.state.ttl_seconds / 3)
            try:
                await self._client.run(exchanges.renewed(self.state))
            except LeaseOver as error:
                self.lost = error
                return
            except DesktopServiceError:
                continue  # the next one may be answered; the lease itself says if it was too late
