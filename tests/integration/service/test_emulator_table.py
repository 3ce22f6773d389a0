"""The table of the older service's routes, replayed: each route, method, place of the token and outcome, with the exact fields."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.integration.service.desktop_service import OPERATOR, DesktopService

PLACES = ("header", "body", "query")
SENT_TOKEN, SENT_ID = "<the token that was sent>", "<the emulator that was asked for>"
PORTS = {"vnc_port": int, "chromium_port": int, "vlc_port": int, "server_port": int}
STARTED = {
    "message": "Emulator started successfully",
    "code": 0,
    "data": {"emulator_id": str, "token": SENT_TOKEN, **PORTS},
}
STOPPED = {"message": "Emulator stopped successfully", "code": 0}
SHOWN = {"emulator_id": SENT_ID, "token": SENT_TOKEN, **PORTS, "duration_minutes": int, "container_id": str}
USE = {"current": int, "limit": int}
STATUS = {
    "uptime_seconds": int,
    "cpu_percent": float,
    "memory_percent": float,
    "total_containers_for_image": int,
    "total_emulators": int,
    "tokens": [{"token": SENT_TOKEN, **USE, "available": int}],
}
NO_TOKEN = {"message": "Token required", "code": 401}
UNKNOWN_TOKEN = {"message": str, "code": 403}
NO_EMULATOR = {"message": "Emulator not found", "code": 404}
OVER_QUOTA = {"message": str, "code": 429}


@dataclass(frozen=True)
class Route:
    """A line of the table."""

    method: str
    path: str
    """With ``{id}`` where an emulator is named."""
    reply: Any
    """Values, or the types of values."""
    body: Mapping[str, Any] | None = None
    missing: Mapping[str, Any] | None = None
    """What is answered where there is no such emulator; None if none is named."""
    starts: bool = False

    @property
    def names_one(self) -> bool:
        return self.missing is not None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


ROUTES = [
    Route("GET", "/start_emulator", STARTED, starts=True),
    Route("POST", "/start_emulator", STARTED, {}, starts=True),
    Route("POST", "/stop_emulator", STOPPED, {"emulator_id": "{id}"}, missing=NO_EMULATOR),
    Route("DELETE", "/emulators/{id}", STOPPED, missing=NO_EMULATOR),
    Route("GET", "/status", STATUS),
    Route("GET", "/tokens", {SENT_TOKEN: {**USE, "emulator_count": int}}),
    Route("GET", "/emulators", [{**SHOWN, "start_time": float}]),
    Route("GET", "/emulators_by_token", [SENT_ID]),
    Route(
        "GET", "/emulator_status/{id}", {**SHOWN, "status": "running"}, missing={**NO_EMULATOR, "status": "not_found"}
    ),
]
STOP = ROUTES[2]
ASKING = [(route, place) for route in ROUTES for place in PLACES]
NAMING = [(route, place) for route, place in ASKING if route.names_one]
STARTING = [(route, place) for route, place in ASKING if route.starts]


@pytest.fixture(scope="module")
def plain(service: DesktopService) -> Iterator[httpx.Client]:
    """A client without a token; one for all, as each takes longer to make than its request."""
    with service.client("") as client:
        yield client


@pytest.fixture(scope="module")
def emulator(plain: httpx.Client, token: str) -> Iterator[str]:
    """One that is lent during most of this table."""
    emulator_id = started(plain, token)
    yield emulator_id
    plain.delete(f"/emulators/{emulator_id}", headers=bearer(token))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def started(plain: httpx.Client, token: str) -> str:
    reply = plain.post("/start_emulator", headers=bearer(token))
    assert reply.status_code == 200, reply.text
    return str(reply.json()["data"]["emulator_id"])


def asked(plain: httpx.Client, route: Route, place: str, token: str, emulator_id: str = "") -> httpx.Response:
    """The reply to a request with the token in one of three places; with no token if it is empty."""
    body = (
        None if route.body is None else {name: str(value).format(id=emulator_id) for name, value in route.body.items()}
    )
    if place == "body":
        body = {**(body or {}), "token": token}
    query = {"token": token} if place == "query" else None
    headers = bearer(token) if place == "header" else None
    return plain.request(route.method, route.path.format(id=emulator_id), json=body, params=query, headers=headers)


def check(reply: httpx.Response, status: int, fields: Any, token: str = "", emulator_id: str = "") -> None:
    """Same status, the same fields and no others, the same values or types."""
    assert reply.headers["content-type"] == "application/json"
    sent = {SENT_TOKEN: token, SENT_ID: emulator_id}
    assert (reply.status_code, differing(reply.json(), fields, sent)) == (status, []), reply.text


def differing(said: Any, wanted: Any, sent: Mapping[str, str], where: str = "$") -> list[str]:
    """Where a reply is not as it should be."""
    if isinstance(wanted, type):
        return [] if type(said) is wanted else [f"{where} is {said!r}, no {wanted.__name__}"]
    if isinstance(wanted, dict):
        named = {sent.get(name, name): one for name, one in wanted.items()}
        if not isinstance(said, dict) or set(said) != set(named):
            return [f"{where} is {said!r}, and should have {sorted(named)}"]
        return [line for name in named for line in differing(said[name], named[name], sent, f"{where}.{name}")]
    if isinstance(wanted, list):
        if not isinstance(said, list) or len(said) != len(wanted):
            return [f"{where} is {said!r}, not {len(wanted)} long"]
        return [
            line for one, other in zip(said, wanted, strict=True) for line in differing(one, other, sent, f"{where}[]")
        ]
    value = sent.get(wanted, wanted) if isinstance(wanted, str) else wanted
    return [] if said == value and type(said) is type(value) else [f"{where} is {said!r}, not {value!r}"]


@pytest.mark.parametrize(("route", "place"), ASKING, ids=str)
def test_200(plain: httpx.Client, token: str, emulator: str, route: Route, place: str) -> None:
    if route.names_one and route.method != "GET":  # it stops one of its own
        own = started(plain, token)
        check(asked(plain, route, place, token, own), 200, route.reply, token, own)
        return
    reply = asked(plain, route, place, token, emulator)
    check(reply, 200, route.reply, token, emulator)
    if route.starts:
        check(asked(plain, STOP, place, token, reply.json()["data"]["emulator_id"]), 200, STOPPED)


@pytest.mark.parametrize("route", ROUTES, ids=str)
@pytest.mark.parametrize("place", PLACES)
def test_401(plain: httpx.Client, emulator: str, route: Route, place: str) -> None:
    reply = asked(plain, route, place, "", emulator)
    check(reply, 401, NO_TOKEN)
    assert reply.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(("route", "place"), ASKING, ids=str)
def test_403(plain: httpx.Client, emulator: str, route: Route, place: str) -> None:
    check(asked(plain, route, place, "a token that nobody made", emulator), 403, UNKNOWN_TOKEN)


@pytest.mark.parametrize(("route", "place"), NAMING, ids=str)
def test_403_for_others(plain: httpx.Client, emulator: str, other: str, route: Route, place: str) -> None:
    forbidden = {"message": "Forbidden: token does not own this emulator", "code": 403}
    check(asked(plain, route, place, other, emulator), 403, forbidden)


@pytest.mark.parametrize(("route", "place"), NAMING, ids=str)
def test_404(plain: httpx.Client, token: str, route: Route, place: str) -> None:
    check(asked(plain, route, place, token, str(uuid.uuid4())), 404, route.missing)


@pytest.mark.parametrize(("route", "place"), STARTING, ids=str)
def test_429(plain: httpx.Client, other: str, route: Route, place: str) -> None:
    check(asked(plain, route, place, other), 429, OVER_QUOTA)


@pytest.fixture(scope="module")
def other(service: DesktopService) -> Iterator[str]:
    """A token that may have no emulator at all."""
    yield service.token("other", 0)
    service.tokens.revoke("other")


@pytest.mark.parametrize(
    ("sent", "body", "status", "fields"),
    [
        (OPERATOR, {"token": "other", "limit": 0}, 200, {"message": str, "code": 0}),
        ("", {"token": "other", "limit": 0}, 401, NO_TOKEN),
        ("a token that nobody made", {"token": "other", "limit": 0}, 403, UNKNOWN_TOKEN),
        (OPERATOR, {"token": "nobody", "limit": 0}, 400, {"message": str, "code": 400}),
        (OPERATOR, {"limit": 0}, 400, {"message": str, "code": 400}),
        (OPERATOR, {"token": "other", "limit": "many"}, 400, {"message": str, "code": 400}),
    ],
    ids=lambda one: str(one)[:30],
)
def test_set_token_limit(
    plain: httpx.Client, other: str, sent: str, body: dict[str, Any], status: int, fields: dict[str, Any]
) -> None:
    del other  # it must be there first
    check(plain.post("/set_token_limit", json=body, headers=bearer(sent)), status, fields)


@pytest.mark.parametrize("body", [{}, {"emulator_id": ""}, {"emulator_id": None}], ids=str)
def test_a_stop_names_an_emulator(plain: httpx.Client, token: str, body: dict[str, Any]) -> None:
    check(plain.post("/stop_emulator", json=body, headers=bearer(token)), 400, {"message": str, "code": 400})


@pytest.mark.parametrize("token_sent", [OPERATOR, ""], ids=["a token", "none"])
def test_ping(plain: httpx.Client, token_sent: str) -> None:
    check(plain.get("/ping", headers=bearer(token_sent)), 200, {"message": str})


def test_the_clients_own_order_of_calls(service: DesktopService, token: str) -> None:
    """As its provider does: look at the quota, start with the token in two places, use the ports, delete, and fall back."""
    with service.client(token) as client:
        held = client.get("/emulators_by_token").json()
        use = client.get("/tokens", timeout=10).json()[token]
        assert use["current"] < use["limit"]
        begun = client.post("/start_emulator", json={"token": token}, timeout=30).json()
        assert begun["code"] == 0
        data = begun["data"]
        assert all(type(data[name]) is int and data[name] for name in PORTS)
        mine = [one["emulator_id"] for one in client.get("/emulators").json() if one["token"] == token]
        assert mine == [*held, data["emulator_id"]]
        assert client.delete(f"/emulators/{data['emulator_id']}", timeout=20).status_code == 200
        again = client.delete(f"/emulators/{data['emulator_id']}", timeout=20)
        assert again.status_code in (404, 405)  # and then the older way
        assert client.post("/stop_emulator", json={"emulator_id": data["emulator_id"]}).status_code == 404
        assert client.get("/tokens").json()[token]["current"] == use["current"]
