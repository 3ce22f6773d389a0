"""Connections to a lent desktop's ports through the service that lends it: a socket here, a WebSocket to the service."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, suppress
from typing import Any

from vm_pool.providers.base import CONNECT_SECONDS
from vm_pool.providers.remote.emulator_service import PORTS

_PIECE = 1 << 16
_LARGEST_MESSAGE = 1 << 20


def connected(url: str, token: str, emulator_id: str, purpose: str) -> socket.socket:
    """Returns a socket whose bytes go to a desktop's port and come from there.

    Args:
        url: The service, without a slash at its end.
        token: Sent as a Bearer token.
        emulator_id: The desktop.
        purpose: Of its port: ``control``, ``chromium``, ``vnc``, ``vlc``.

    Raises:
        OSError: The service does not answer, or refuses.
    """
    from websockets.exceptions import WebSocketException  # here, because it is optional
    from websockets.sync.client import connect  # here, because it is optional

    name = next(name for name, one in PORTS.items() if one == purpose)
    address = f"ws{url.removeprefix('http')}/emulators/{emulator_id}/ports/{name}"
    opened = ExitStack()
    try:
        far = opened.enter_context(
            connect(
                address,
                additional_headers={"Authorization": f"Bearer {token}"},
                open_timeout=CONNECT_SECONDS,
                close_timeout=1.0,
                max_size=_LARGEST_MESSAGE,
                compression=None,
                proxy=None,
            )
        )
    except (WebSocketException, TimeoutError, OSError) as error:
        raise ConnectionRefusedError(f"{address}: {error}") from error
    near, mine = socket.socketpair()
    threading.Thread(target=_to_service, args=(mine, far, opened), name="to a lent desktop", daemon=True).start()
    threading.Thread(target=_from_service, args=(far, mine), name="from a lent desktop", daemon=True).start()
    return near


def _to_service(mine: socket.socket, far: Any, opened: ExitStack) -> None:
    with suppress(Exception):  # whatever ends one side ends the other
        while content := mine.recv(_PIECE):
            far.send(content)
    with suppress(Exception):
        opened.close()


def _from_service(far: Any, mine: socket.socket) -> None:
    with suppress(Exception):  # as above
        for message in far:
            mine.sendall(message if isinstance(message, bytes) else message.encode())
    with suppress(OSError):
        mine.shutdown(socket.SHUT_RDWR)
    mine.close()
