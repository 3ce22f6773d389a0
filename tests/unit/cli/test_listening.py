"""What the servers of commands listen with."""

from __future__ import annotations

import socket

from rollout_tasks.cli.listening import listener


def test_what_a_server_says_in_small_pieces_is_not_held_back() -> None:
    with listener("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
