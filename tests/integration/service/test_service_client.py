"""The Python client: it renews by itself, sends lost calls again with their keys, and says why a lease is over."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from rollout_tasks.service_client import (
    AsyncDesktopClient,
    DesktopClient,
    DesktopServiceError,
    LeaseOver,
    LeaseState,
    NoDesktop,
    QuotaUsedUp,
    ServiceUnreachable,
)
from rollout_tasks.service_client import exchanges as exchanges_of_client
from tests.conftest import free_port
from tests.integration.service.desktop_service import DesktopService


@pytest.fixture
def client(service: DesktopService, alice: httpx.Client, token: str) -> Iterator[DesktopClient]:
    with DesktopClient(service.url, token, patience=20) as made:
        yield made


def test_an_item_is_played_to_its_score(client: DesktopClient) -> None:
    assert client.items() == {"one": "Do the work of one.", "two": "Do the work of two."}
    with client.lease(item="one") as lease:
        assert (lease.state.question, lease.observe().text) == ("Do the work of one.", "3 steps to do")
        assert [lease.act("work").over for _ in range(3)] == [None, None, "done"]
        with pytest.raises(DesktopServiceError, match=r"the episode is over \(done\): evaluate it") as refused:
            lease.act("work")
        assert refused.value.status == 409
        outcome = lease.evaluate()
    assert (outcome.score, outcome.reward, outcome.turns, outcome.failure_class) == (1.0, 1.0, 3, None)
    with pytest.raises(LeaseOver, match="the lease is over"):
        lease.act("work")


def test_coroutines_play_beside_each_other(service: DesktopService, alice: httpx.Client, token: str) -> None:
    async def play(client: AsyncDesktopClient, index: int) -> float | None:
        async with client.lease(task={"id": "t", "question": "?", "env_config": {"steps": 2}}, index=index) as lease:
            assert (await lease.observe()).text == "2 steps to do"
            while (await lease.act("work", {})).over is None:
                pass
            return (await lease.evaluate()).reward

    async def run() -> list[float | None]:
        async with AsyncDesktopClient(service.url, token) as client:
            assert set(await client.items()) == {"one", "two"}
            return await asyncio.gather(*(play(client, index) for index in range(2)))

    assert asyncio.run(run()) == [1.0, 1.0]


def test_places_in_the_queue_are_told_and_given_up(service: DesktopService, client: DesktopClient) -> None:
    seen: list[LeaseState] = []
    with client.lease(), client.lease():
        with pytest.raises(QuotaUsedUp, match="its quota is 2"):
            client.acquire()
        with (
            DesktopClient(service.url, "operator-0123456789abcdef") as boss,
            pytest.raises(NoDesktop, match=r"no desktop within 3 s; it had place 1 in the queue of 1"),
        ):
            boss.acquire(timeout=3, while_waiting=seen.append)
    assert {one.state for one in seen} == {"waiting"}


def test_what_is_wrong_is_said(client: DesktopClient, service: DesktopService) -> None:
    with pytest.raises(DesktopServiceError, match="there is no item 'three'") as unknown:
        client.acquire(item="three")
    assert (type(unknown.value), unknown.value.status) == (DesktopServiceError, 404)
    with pytest.raises(NoDesktop, match="simulated env_setup") as failed:
        client.acquire(task={"id": "t", "question": "?", "env_config": {"fail": "env_setup"}})
    assert failed.value.failure_class == "env_setup"
    with DesktopClient(service.url, "wrong") as stranger, pytest.raises(DesktopServiceError, match="not known") as no:
        stranger.acquire()
    assert no.value.status == 403
    began = time.monotonic()
    with (
        DesktopClient(f"http://127.0.0.1:{free_port()}", "any", patience=1) as lonely,
        pytest.raises(ServiceUnreachable, match=r"^the service at http://127\.0\.0\.1:\d+ does not answer: .*refused"),
    ):
        lonely.acquire()
    assert time.monotonic() - began < 20


def test_a_call_whose_reply_is_lost_happens_once(
    client: DesktopClient, alice: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first reply comes too late, whatever the service does; the service itself is real."""
    send = httpx.Client.request
    lost: list[str] = []

    def request(self: httpx.Client, method: str, url: str, **options: object) -> httpx.Response:
        reply = send(self, method, url, **options)  # type: ignore[arg-type]
        if url not in lost and "renew" not in url:
            lost.append(url)
            raise httpx.ReadTimeout("the reply was lost")
        return reply

    monkeypatch.setattr(httpx.Client, "request", request)
    lease = client.acquire(item="one")
    assert [lease.act("work").turn for _ in range(2)] == [1, 2]
    lease.release()
    assert [url.rpartition("/")[2] for url in lost][:2] == ["leases", "act"]
    monkeypatch.undo()
    assert alice.get("/leases").json()["leases"] == []


def test_a_conversation_gives_up_at_its_deadline() -> None:
    exchange = exchanges_of_client.answered(exchanges_of_client.Request("GET", "/items"), patience=0.0)
    assert isinstance(next(exchange), exchanges_of_client.Request)
    with pytest.raises(ServiceUnreachable, match=r"^the service at /items does not answer: nobody$"):
        exchange.throw(httpx.ConnectError("nobody"))


@pytest.mark.slow
def test_a_lease_is_renewed_until_it_ends(service: DesktopService, client: DesktopClient, alice: httpx.Client) -> None:
    with client.lease() as lease:
        time.sleep(1.5 * lease.state.ttl_seconds)
        assert lease.act("work").turn == 1
        alice.delete(f"/leases/{lease.state.lease_id}")
        threading.Event().wait(lease.state.ttl_seconds / 2)
        assert isinstance(lease.lost, LeaseOver)


@pytest.mark.parametrize("make", [DesktopClient, AsyncDesktopClient])
def test_what_is_no_address_or_no_token_is_said_at_once(make: type[DesktopClient] | type[AsyncDesktopClient]) -> None:
    for url in ("127.0.0.1:8770", "host:8770", "ftp://host:8770", "http://", "", "http://host:port"):
        with pytest.raises(DesktopServiceError, match=f"^url: must look like http://HOST:8770, got {url!r}$"):
            make(url, "token")
    for token in ("", "t\u00f6ken", "a\nb", "token "):
        with pytest.raises(DesktopServiceError, match=r"^token: is empty, or has letters or blanks that no token has$"):
            make("http://host:8770", token)


def test_https_to_a_service_of_http_is_named(service: DesktopService) -> None:
    with (
        DesktopClient(service.url.replace("http:", "https:"), "token", patience=0) as client,
        pytest.raises(ServiceUnreachable, match=r"; it may speak http, not https$"),
    ):
        client.items()
