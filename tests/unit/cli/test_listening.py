"""What the servers of commands listen with."""

from __future__ import annotations

import socket

from rollout_tasks.cli.listening import listener


def test_what_a_server_says_in_small_pieces_is_not_held_back() -> None:
    with listener("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
"""The address that a server's log names can be put into a browser, whatever its family."""

from __future__ import annotations

import pytest

from rollout_tasks.cli import listening


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_an_address_is_shown_as_a_url(host: str, shown: str) -> None:
    with listening.listener(host, 0) as listener:
        assert listening.url_of(listener) == f"http://{shown}:{listener.getsockname()[1]}"
