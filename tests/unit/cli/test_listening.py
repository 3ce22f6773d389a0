"""What the servers of commands listen with, and the addresses that they name."""

from __future__ import annotations

import socket

import pytest

from rollout_tasks.cli.listening import listener, url_of


def test_what_a_server_says_in_small_pieces_is_not_held_back() -> None:
    with listener("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_an_address_can_be_put_into_a_browser_whatever_its_family(host: str, shown: str) -> None:
    with listener(host, 0) as listening:
        assert url_of(listening) == f"http://{shown}:{listening.getsockname()[1]}"
