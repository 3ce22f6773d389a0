"""The client for programs with threads: `DesktopClient`, and the `Lease` that it gives, which a thread renews."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from rollout_tasks.service_client import exchanges
from rollout_tasks.service_client.answers import LeaseState, Observation, Outcome, Step
from rollout_tasks.service_client.errors import DesktopServiceError, LeaseOver
from rollout_tasks.service_client.exchanges import Exchange, Pause, WhileWaiting

_Answer = TypeVar("_Answer")


class DesktopClient:
    """A client of one service. Threads may share it."""

    def __init__(self, url: str, token: str, *, patience: float = 60.0) -> None:
        """Sends nothing yet.

        Args:
            url: The service's address, as http://host:8770.
            token: As `rollouts desktops token make` printed it.
            patience: Seconds for which a call is tried again while the service does not answer.

        Raises:
            DesktopServiceError: The address or the token can be no such thing.
        """
        self.patience = patience
        self._http = httpx.Client(**exchanges.connection(url, token))

    def acquire(
        self,
        *,
        item: str | None = None,
        task: Mapping[str, Any] | None = None,
        index: int = 0,
        timeout: float = 1800.0,
        while_waiting: WhileWaiting | None = None,
    ) -> Lease:
        """Acquires a desktop: with an item, with a task, or bare.

        Args:
            item: The id of one of the service's items.
            task: An OSWorld task file's JSON, or an item as in JSONL.
            index: Which of the item's rollouts it is, where they differ.
            timeout: Seconds to wait for a desktop.
            while_waiting: Told the place in the queue after each look.

        Raises:
            DesktopServiceError: There is none; the subclass says why.
        """
        wanted = exchanges.wanted(item, task, index)
        return Lease(self, self.run(exchanges.acquired(wanted, timeout, self.patience, while_waiting)))

    @contextmanager
    def lease(self, **wanted: Any) -> Iterator[Lease]:
        """Acquires a desktop as `acquire` does, and releases it at the end of the context."""
        lease = self.acquire(**wanted)
        try:
            yield lease
        finally:
            lease.release()

    def items(self) -> dict[str, str]:
        """Returns the questions of the service's items by their ids."""
        reply = self.run(exchanges.answered(exchanges.Request("GET", "/items"), self.patience))
        return {one["item_id"]: one["question"] for one in reply.json()["items"]}

    def leases(self) -> list[LeaseState]:
        """Returns the leases of the token's holder that go on; all that go on for an operator's token."""
        reply = self.run(exchanges.answered(exchanges.Request("GET", "/leases"), self.patience))
        return [LeaseState.from_json(one) for one in reply.json()["leases"]]

    def release(self, lease_id: str) -> None:
        """Ends a lease by its id, as one that a program left. Harmless when it is over."""
        self.run(exchanges.released(lease_id, self.patience))

    def view(self, lease_id: str, *, fence: int | None = None, may_help: bool = False) -> str:
        """Returns an address where a person sees a lease's desktop, in a browser: it can be opened once, within two minutes.

        Args:
            lease_id: The lease.
            fence: Its number, if it is known.
            may_help: Whether the person may use keyboard, pointer and clipboard, too; then the outcome says whether that
                was done. The service's operator decides whether there is such help.

        Raises:
            DesktopServiceError: The service refuses it, as where it has no noVNC.
        """
        path = self.run(exchanges.viewed(lease_id, fence, self.patience, may_help=may_help))
        return str(self._http.base_url).rstrip("/") + path

    def run(self, exchange: Exchange[_Answer]) -> _Answer:
        """Carries a conversation with the service out."""
        try:
            step = next(exchange)
            while True:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    step = exchange.send(None)
                    continue
                try:
                    reply = self._http.request(
                        step.method, step.path, json=step.body, params=step.query, timeout=step.seconds
                    )
                except httpx.TransportError as error:
                    step = exchange.throw(error)
                else:
                    step = exchange.send(reply)
        except StopIteration as done:
            answer: _Answer = done.value
            return answer

    def close(self) -> None:
        """Closes the connections; release the leases first."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Lease:
    """The right to use one desktop, renewed by a thread until it is released, evaluated or over."""

    def __init__(self, client: DesktopClient, state: LeaseState) -> None:
        """Takes a lease that is ready."""
        self.state = state
        """As it was when the desktop was ready."""
        self.lost: DesktopServiceError | None = None
        """Why a renewal was refused; None while it is renewed."""
        self._client = client
        self._ended = threading.Event()
        threading.Thread(target=self._renew, name=f"lease {state.lease_id}", daemon=True).start()

    def observe(self) -> Observation:
        """Returns what the desktop showed last."""
        return self._client.run(exchanges.observed(self.state, self._client.patience))

    def act(self, name: str, arguments: Mapping[str, Any] | None = None) -> Step:
        """Calls one of the tools; sent again with the same key where the reply was lost, it happens once.

        Raises:
            LeaseOver: The lease is over.
            DesktopServiceError: The service refuses it, as after the episode's end.
        """
        return self._client.run(exchanges.acted(self.state, name, arguments or {}, self._client.patience))

    def view(self, *, may_help: bool = False) -> str:
        """Returns an address where a person sees the desktop, in a browser: it can be opened once, within two minutes.

        Args:
            may_help: Whether the person may use keyboard, pointer and clipboard, too; then the outcome says whether that
                was done. The service's operator decides whether there is such help.

        Raises:
            DesktopServiceError: The service refuses it, as where it has no noVNC.
        """
        return self._client.view(self.state.lease_id, fence=self.state.fence, may_help=may_help)

    def evaluate(self, *, timeout: float = 1800.0) -> Outcome:
        """Ends the episode, scores it, and gives the desktop back."""
        outcome = self._client.run(exchanges.evaluated(self.state, self._client.patience, timeout))
        self._ended.set()
        return outcome

    def release(self) -> None:
        """Gives the desktop back, whatever it does. Harmless when repeated."""
        if not self._ended.is_set():
            self._ended.set()
            self._client.run(exchanges.released(self.state.lease_id, self._client.patience))

    def _renew(self) -> None:
        while not self._ended.wait(self.state.ttl_seconds / 3):
            try:
                self._client.run(exchanges.renewed(self.state))
            except LeaseOver as error:
                self.lost = error
                return
            except DesktopServiceError:
                continue  # the next one may be answered; the lease itself says if it was too late
            except RuntimeError:  # of httpx: the client was closed
                return
