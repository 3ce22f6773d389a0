"""Conversations with the service, without I/O: generators that yield a `Request` or a `Pause` and are sent the reply.

Threads and coroutines drive the same ones. A call whose reply was lost is sent again, with the same key.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from rollout_tasks.service_client.answers import LeaseState, Observation, Outcome, Step
from rollout_tasks.service_client.errors import (
    DesktopServiceError,
    LeaseOver,
    NoDesktop,
    QuotaUsedUp,
    ServiceUnreachable,
)

POLL_SECONDS = 20.0
"""How long the service may hold one request back."""
_MARGIN_SECONDS = 20.0
"""How much later than that its reply may come."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_LEASE_ID = re.compile(r"[A-Za-z0-9-]{1,100}")
_GATEWAYS = frozenset({408, 502, 503, 504})
"""What the service, or a proxy before it, answers when another try may go better."""
_Answer = TypeVar("_Answer")
WhileWaiting = Callable[[LeaseState], None]
"""Told how a lease stands while it waits for its desktop."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to send."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    query: Mapping[str, Any] | None = None
    seconds: float = POLL_SECONDS + _MARGIN_SECONDS


@dataclass(frozen=True, slots=True)
class Pause:
    """A moment to wait."""

    seconds: float


Exchange = Generator[Request | Pause, Any, _Answer]
"""Is sent a `httpx.Response` for a request, or thrown a `httpx.TransportError`."""


def new_key() -> str:
    """Returns a key for one call."""
    return uuid.uuid4().hex


def wanted(item: str | None, task: Mapping[str, Any] | None, index: int) -> dict[str, Any]:
    """Returns what the request for a desktop says."""
    said = {"item": item, "task": None if task is None else dict(task), "index": index}
    return {name: value for name, value in said.items() if value is not None}


def connection(url: str, token: str) -> dict[str, Any]:
    """Returns the arguments of an `httpx` client of the service.

    Raises:
        DesktopServiceError: The address or the token can be no such thing.
    """
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        address = httpx.URL()
    if address.scheme not in ("http", "https") or not address.host:
        raise DesktopServiceError(f"url: must look like http://HOST:8770, got {url[:200]!r}")
    if not token or not all("!" <= letter <= "~" for letter in token):
        raise DesktopServiceError("token: is empty, or has letters or blanks that no token has")
    return {"base_url": address, "headers": {"Authorization": f"Bearer {token}"}}


def answered(request: Request, patience: float) -> Exchange[httpx.Response]:
    """Sends a request until the service answers.

    Args:
        request: May be repeated.
        patience: Seconds after which no further try begins.

    Raises:
        DesktopServiceError: The service refuses it, or did not answer (`ServiceUnreachable`).
    """
    until, pause = time.monotonic() + patience, _FIRST_PAUSE
    while True:
        try:
            reply: httpx.Response = yield request
        except httpx.TransportError as error:
            problem: DesktopServiceError = ServiceUnreachable(_no_answer(request, error))
        else:
            if reply.status_code < 400:
                return reply
            problem = _problem(reply)
            if reply.status_code not in _GATEWAYS or problem.failure_class is not None:
                raise problem
        if time.monotonic() + pause > until:
            raise problem
        yield Pause(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def acquired(
    body: Mapping[str, Any], timeout: float, patience: float, while_waiting: WhileWaiting | None
) -> Exchange[LeaseState]:
    """Acquires a desktop with its item set up; goes on waiting when the service is killed and started again.

    Args:
        body: As of `wanted`.
        timeout: Seconds to wait; then the place in the queue is given up.
        patience: As for `answered`.
        while_waiting: Told how the lease stands after each look.

    Raises:
        NoDesktop: None came in time, or the item could not be set up.
        DesktopServiceError: The service refuses it.
    """
    until = time.monotonic() + timeout
    while True:
        try:
            return (yield from _waited_for(body, timeout, until, patience, while_waiting))
        except LeaseOver as error:
            if error.failure_class is not None or time.monotonic() > until:
                raise
        yield Pause(
            _LONGEST_PAUSE
        )  # it ended with the service, before there was a desktop: the one started since is asked


def _no_answer(request: Request, error: httpx.TransportError) -> str:
    """Says in a sentence which service did not answer, and why."""
    where = f"at {request.path}"
    with suppress(RuntimeError):  # raised if the error knows of no request
        where = f"at {error.request.url.copy_with(path='', query=None)}"
    hint = "; it may speak http, not https" if "WRONG_VERSION_NUMBER" in str(error) else ""
    return f"the service {where} does not answer: {str(error) or type(error).__name__}{hint}"


def _waited_for(
    body: Mapping[str, Any], timeout: float, until: float, patience: float, while_waiting: WhileWaiting | None
) -> Exchange[LeaseState]:
    """Begins one lease and waits for its desktop; arguments as for `acquired`, and when to give up."""
    left = max(0.0, until - time.monotonic())
    named = {**body, "key": new_key(), "wait_seconds": min(POLL_SECONDS, left)}
    reply = yield from answered(Request("POST", "/leases", named), patience)
    state = LeaseState.from_json(reply.json())
    path = f"/leases/{state.lease_id}"
    try:
        while state.state in ("waiting", "setting_up"):
            if while_waiting is not None:
                while_waiting(state)
            left = until - time.monotonic()
            if left <= 0:
                raise NoDesktop(f"no desktop within {timeout:g} s{_place_of(state)}")
            query = {"wait_seconds": min(POLL_SECONDS, left)}
            reply = yield from answered(Request("GET", path, query=query), patience)
            state = LeaseState.from_json(reply.json())
    except NoDesktop:
        yield from released(state.lease_id, patience)
        raise
    if state.state == "ended":
        raise NoDesktop(f"no desktop: {state.error}", failure_class=state.failure_class)
    return state


def renewed(lease: LeaseState) -> Exchange[LeaseState]:
    """Says that the client is still there; is patient for half the TTL, as the next renewal comes then.

    Raises:
        LeaseOver: The lease is over.
    """
    seconds = max(0.5, lease.ttl_seconds / 3)
    request = Request("POST", f"/leases/{lease.lease_id}/renew", {"fence": lease.fence}, seconds=seconds)
    reply = yield from answered(request, lease.ttl_seconds / 2)
    return LeaseState.from_json(reply.json())


def observed(lease: LeaseState, patience: float) -> Exchange[Observation]:
    """Returns what the desktop showed last."""
    query = {"fence": lease.fence}
    reply = yield from answered(Request("GET", f"/leases/{lease.lease_id}/observe", query=query), patience)
    return Observation.from_json(reply.json())


def acted(lease: LeaseState, name: str, arguments: Mapping[str, Any], patience: float) -> Exchange[Step]:
    """Carries out one act, once."""
    body = {"fence": lease.fence, "key": new_key(), "name": name, "arguments": dict(arguments)}
    reply = yield from answered(Request("POST", f"/leases/{lease.lease_id}/act", body), patience)
    return Step.from_json(reply.json())


def evaluated(lease: LeaseState, patience: float, timeout: float) -> Exchange[Outcome]:
    """Ends the episode, and waits for its score.

    Raises:
        DesktopServiceError: The service refuses it, or it takes longer than `timeout` seconds.
    """
    until = time.monotonic() + timeout
    body = {"fence": lease.fence, "wait_seconds": POLL_SECONDS}
    while True:
        reply = yield from answered(Request("POST", f"/leases/{lease.lease_id}/evaluate", body), patience)
        if reply.status_code == 200:
            return Outcome.from_json(reply.json())
        if time.monotonic() > until:
            raise DesktopServiceError(f"lease {lease.lease_id} was not evaluated within {timeout:g} s")


def viewed(lease_id: str, fence: int | None, patience: float, *, may_help: bool) -> Exchange[str]:
    """Returns the path of an address where a person sees the desktop.

    Args:
        lease_id: The lease.
        fence: Its number; None to ask for it first.
        patience: As for `answered`.
        may_help: Whether the person may use the desktop, too.

    Raises:
        DesktopServiceError: The service refuses it.
    """
    if not _LEASE_ID.fullmatch(lease_id):  # a person may have typed it, and it goes into an address
        raise DesktopServiceError("there is no such lease: an id has letters, digits and '-'")
    path = f"/leases/{lease_id}"
    if fence is None:
        reply = yield from answered(Request("GET", path), patience)
        fence = _field(reply, "fence")
    if fence is None:
        raise DesktopServiceError(f"lease {lease_id} has no desktop to look at: it waits for one, or never had one")
    body = {"fence": fence, "help": may_help}
    reply = yield from answered(Request("POST", f"{path}/view", body), patience)
    return str(_field(reply, "path"))


def _field(reply: httpx.Response, name: str) -> Any:
    """Returns a field of a reply, which may be that of any program if a person typed the address."""
    try:
        return reply.json()[name]
    except (ValueError, LookupError, TypeError) as error:
        raise DesktopServiceError("what answers at this address is no desktop service") from error


def released(lease_id: str, patience: float) -> Exchange[None]:
    """Gives a desktop back; a lease that is over already is none to complain of."""
    try:
        yield from answered(Request("DELETE", f"/leases/{lease_id}"), patience)
    except LeaseOver:
        return


def _place_of(state: LeaseState) -> str:
    return "" if state.place is None else f"; it had place {state.place} in the queue of {state.waiting}"


def _problem(reply: httpx.Response) -> DesktopServiceError:
    """Returns what a refusal is raised as."""
    try:
        values = reply.json()
        sentence, failure_class = str(values["detail"]), values.get("failure_class")
    except (ValueError, TypeError, KeyError, AttributeError):  # a proxy's own words
        sentence, failure_class = f"{reply.status_code} {reply.reason_phrase}", None
    kinds = {404: LeaseOver, 410: LeaseOver, 429: QuotaUsedUp, 503: NoDesktop}
    kind = kinds.get(reply.status_code, DesktopServiceError)
    if reply.status_code == 404 and reply.request.method == "POST" and reply.request.url.path.endswith("/leases"):
        kind = DesktopServiceError  # the item is not known
    return kind(sentence, reply.status_code, failure_class)
