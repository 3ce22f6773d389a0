"""The WebSocket of a lease: one message for each call, with the statuses that HTTP would give."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.integration.service.desktop_service import DesktopService, acquired

client_of = pytest.importorskip("websockets.sync.client", reason="the package websockets is not installed")
exceptions = pytest.importorskip("websockets.exceptions")


class Socket:
    """A connection to one lease."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def call(self, **message: Any) -> dict[str, Any]:
        return self.send(json.dumps(message))

    def send(self, content: str | bytes) -> dict[str, Any]:
        self._connection.send(content)
        answer: dict[str, Any] = json.loads(self._connection.recv(timeout=20))
        return answer


def connected(service: DesktopService, token: str, lease_id: str) -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    return client_of.connect(f"ws://127.0.0.1:{service.port}/leases/{lease_id}/ws", additional_headers=headers)


@pytest.fixture
def lease(alice: httpx.Client) -> dict[str, Any]:
    return acquired(alice, item="one")


def test_a_step_loop_goes_over_one_connection(service: DesktopService, token: str, lease: dict[str, Any]) -> None:
    fence = lease["fence"]
    with connected(service, token, lease["lease_id"]) as connection:
        socket = Socket(connection)
        seen = socket.call(call="observe", fence=fence, id=1)
        assert seen == {"id": 1, "status": 200, "body": {"text": "3 steps to do", "screenshots": [], "turn": 0}}
        assert socket.call(call="renew", fence=fence)["body"]["state"] == "ready"
        steps = [socket.call(call="act", fence=fence, key=f"k{n}", name="work") for n in range(3)]
        assert [step["body"]["over"] for step in steps] == [None, None, "done"]
        again = socket.call(call="act", fence=fence, key="k2", name="work", id="again")
        assert (again["id"], again["body"]) == ("again", steps[2]["body"])
        end = socket.call(call="evaluate", fence=fence)
        assert (end["status"], end["body"]["reward"]) == (200, 1.0)
        with pytest.raises(exceptions.ConnectionClosedOK):
            connection.recv(timeout=20)


def test_addresses_of_sockets_are_not_logged(service: DesktopService, token: str, lease: dict[str, Any]) -> None:
    """Older clients send their token in them."""
    address = f"ws://127.0.0.1:{service.port}/leases/{lease['lease_id']}/ws?token=hidden-in-the-address"
    with client_of.connect(address, additional_headers={"Authorization": f"Bearer {token}"}) as connection:
        assert Socket(connection).call(call="renew", fence=lease["fence"])["status"] == 200

    assert "hidden-in-the-address" not in service.said()


def test_wrong_messages_are_answered_and_the_connection_goes_on(
    service: DesktopService, token: str, lease: dict[str, Any]
) -> None:
    fence = lease["fence"]
    with connected(service, token, lease["lease_id"]) as connection:
        socket = Socket(connection)
        for content, status, said in (
            ("{", 400, "the body is not JSON"),
            (b"{}", 400, "a message must be text"),
            ("[]", 422, "the body must be a JSON object"),
            ("{}", 422, "call: is missing"),
            (json.dumps({"call": "fly", "fence": 1}), 422, "call: must be renew, observe, act or evaluate, got 'fly'"),
            (json.dumps({"call": "act", "fence": fence}), 422, "key: is missing"),
            (json.dumps({"call": "observe", "fence": fence, "key": "k"}), 422, "key: is not an option"),
            (json.dumps({"call": "renew", "fence": fence + 1}), 409, "is not that of the lease"),
        ):
            answer = socket.send(content)
            assert (answer["status"], list(answer["body"])) == (status, ["detail"])
            assert said in answer["body"]["detail"]
        assert socket.call(call="act", fence=fence, key="a", name="work")["body"]["turn"] == 1


def test_the_lease_outlives_the_connection(service: DesktopService, token: str, lease: dict[str, Any]) -> None:
    for turn in (1, 2):
        with connected(service, token, lease["lease_id"]) as connection:
            step = Socket(connection).call(call="act", fence=lease["fence"], key=f"turn-{turn}", name="work")
            assert step["body"]["turn"] == turn


@pytest.mark.parametrize(("token", "lease_id", "status"), [("", "none", 401), ("wrong", "none", 403)])
def test_a_socket_needs_a_token(service: DesktopService, token: str, lease_id: str, status: int) -> None:
    with pytest.raises(exceptions.InvalidStatus) as refused:
        connected(service, token, lease_id).__enter__()
    assert refused.value.response.status_code == status
    assert list(json.loads(refused.value.response.body)) == ["detail"]


def test_an_unknown_lease_has_no_socket(service: DesktopService, token: str, alice: httpx.Client) -> None:
    with pytest.raises(exceptions.InvalidStatus) as refused:
        connected(service, token, "none").__enter__()
    assert refused.value.response.status_code == 404
    plain = alice.get("/leases/none/ws")
    assert (plain.status_code, list(plain.json())) == (400, ["detail"])


def test_a_lease_has_a_most_of_sockets(service: DesktopService, token: str, lease: dict[str, Any]) -> None:
    with ExitStack() as opened:
        for _ in range(8):
            opened.enter_context(connected(service, token, lease["lease_id"]))
        with pytest.raises(exceptions.InvalidStatus) as refused:
            connected(service, token, lease["lease_id"]).__enter__()
        assert refused.value.response.status_code == 429
        opened.pop_all().close()
    with connected(service, token, lease["lease_id"]) as connection:
        assert Socket(connection).call(call="renew", fence=lease["fence"])["status"] == 200


def test_messages_are_not_compressed(service: DesktopService, token: str, lease: dict[str, Any]) -> None:
    """A small message could become a large one, and many come at once."""
    with connected(service, token, lease["lease_id"]) as connection:
        assert "Sec-WebSocket-Extensions" not in connection.response.headers
