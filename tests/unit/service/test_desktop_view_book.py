"""Views over time: tickets and views run out, and help is over once a desktop is to be scored."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmark.items import Item
from rollout_tasks.cells.channel import MessageChannel
from rollout_tasks.config import parse_config
from rollout_tasks.environments.base import Observation
from rollout_tasks.http_services.token_holders import TokenHolder, TokenHolders
from rollout_tasks.http_services.token_store import TokenStore
from rollout_tasks.http_services.tokens import ServiceTokens
from rollout_tasks.redis_client import connect
from rollout_tasks.service.lending.desktop_views import TICKET_SECONDS, VIEW_SECONDS, DesktopViews, View
from rollout_tasks.service.lending.lease_book import LentDesktop
from rollout_tasks.service.lending.refusal import Refusal
from rollout_tasks.service.played_session import PlayedSession
from rollout_tasks.service.session_order import SessionOrder, packed
from rollout_tasks.service.session_spawner import SpawnedProcess
from tests.virtual_machines import wait_until

TOKEN = "operator-0123456789abcdef"
ASKED = TokenHolder("boss", None, operator=True)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def views(clock: Clock) -> DesktopViews:
    store = TokenStore(connect(tries=0, url="redis://127.0.0.1:1"))  # which is never asked
    return DesktopViews(TokenHolders(ServiceTokens(f"boss:{TOKEN}"), store), clock)


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def process(sockets: tuple[socket.socket, socket.socket]) -> MessageChannel:
    """What the session's process says."""
    return MessageChannel(sockets[1])


@pytest.fixture
def lent(sockets: tuple[socket.socket, socket.socket], tmp_path: Path) -> Iterator[LentDesktop]:
    sleeper = subprocess.Popen(["sleep", "600"])
    spawned = SpawnedProcess(MessageChannel(sockets[0]), os.pidfd_open(sleeper.pid))
    order = SessionOrder("lease-1", Item("one", "Do it."), parse_config({}), tmp_path)
    session = PlayedSession(order, spawned, lambda _session, _end: None, 60.0)
    yield LentDesktop(session, "operator:boss", bare=False, emulator=False)
    sleeper.kill()
    sleeper.wait()
    sockets[1].shutdown(socket.SHUT_RDWR)
    assert session.wait_until_ended(20)


def grant(lent: LentDesktop, process: MessageChannel) -> None:
    endpoint = {"address": "127.0.0.1", "ports": {"vnc": 1}}
    process.send({"event": "granted", "vm_id": "vm-1", "fence": 7, "pooled": True, "ports": {}, "endpoint": endpoint})
    wait_until(lambda: lent.session.endpoint is not None, seconds=20)


def make_ready(lent: LentDesktop, process: MessageChannel) -> None:
    grant(lent, process)
    shown, images = packed(Observation("", ()))
    process.send({"event": "ready", "shown": shown, "tools": [], "instructions": ""}, images)
    wait_until(lambda: lent.session.ready, seconds=20)


def exchanged(views: DesktopViews, lent: LentDesktop, *, may_help: bool = False) -> tuple[View, str]:
    view, ticket = views.begin(lent, ASKED, may_help=may_help)
    return view, views.exchange(view.id, ticket)


def test_a_ticket_runs_out_and_is_gone_then(
    views: DesktopViews, lent: LentDesktop, process: MessageChannel, clock: Clock
) -> None:
    grant(lent, process)
    view, ticket = views.begin(lent, ASKED, may_help=False)
    clock.now += TICKET_SECONDS + 1
    with pytest.raises(Refusal, match="this address is older than 120 s"):
        views.exchange(view.id, ticket)
    clock.now -= TICKET_SECONDS
    with pytest.raises(Refusal, match="this address was used already"):
        views.exchange(view.id, ticket)


def test_another_views_ticket_and_cookie_are_worth_nothing(
    views: DesktopViews, lent: LentDesktop, process: MessageChannel
) -> None:
    grant(lent, process)
    one, _ = views.begin(lent, ASKED, may_help=True)
    other, ticket = views.begin(lent, ASKED, may_help=False)
    for view_id in (one.id, "none"):
        with pytest.raises(Refusal) as caught:
            views.exchange(view_id, ticket)
        assert caught.value.status == 403
    cookie = views.exchange(other.id, ticket)
    assert views.find(other.id, cookie) is other
    for view_id, wrong in (
        (one.id, cookie),
        (other.id, ticket),
        (other.id, ""),
        (other.id, "\udcff"),
        ("none", cookie),
    ):
        with pytest.raises(Refusal) as caught:
            views.find(view_id, wrong)
        assert caught.value.status == 403


def test_a_view_runs_out(views: DesktopViews, lent: LentDesktop, process: MessageChannel, clock: Clock) -> None:
    grant(lent, process)
    view, cookie = exchanged(views, lent)
    clock.now += VIEW_SECONDS - 1
    assert views.find(view.id, cookie) is view
    clock.now += 2
    with pytest.raises(Refusal, match="the view is over after 4 hours"):
        views.find(view.id, cookie)


def test_nothing_that_is_secret_is_shown(views: DesktopViews, lent: LentDesktop, process: MessageChannel) -> None:
    grant(lent, process)
    view, ticket = views.begin(lent, ASKED, may_help=False)
    cookie = views.exchange(view.id, ticket)
    assert not any(secret in repr(view) for secret in (ticket, cookie, TOKEN))


def test_a_lease_that_waits_shows_nothing(views: DesktopViews, lent: LentDesktop) -> None:
    with pytest.raises(Refusal, match="still waits for a desktop"):
        views.begin(lent, ASKED, may_help=False)


def test_help_begins_once_the_item_is_set_up_and_ends_before_it_is_scored(
    views: DesktopViews, lent: LentDesktop, process: MessageChannel
) -> None:
    grant(lent, process)
    view, _ = exchanged(views, lent, may_help=True)
    looking, _ = exchanged(views, lent)
    assert view.may_help() is False, "it is being set up"
    make_ready(lent, process)
    assert (view.may_help(), looking.may_help()) == (True, False)
    lent.session.over = "done"
    assert view.may_help() is False
    lent.session.over = None
    loop = asyncio.new_event_loop()
    lent.evaluation = loop.create_future()
    assert view.may_help() is False
    lent.evaluation = None
    loop.close()
    lent.session.stop("its client released it")
    assert view.may_help() is False
    with pytest.raises(Refusal, match="the lease is over"):
        views.check(view)
