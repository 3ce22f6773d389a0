"""Sets the clock of the user's own system after a revert, through its HTTP server."""

from __future__ import annotations

import http.client
import json
import logging
import shlex
import time

from vm_pool.providers.guest_server import Connect

log = logging.getLogger(__name__)

SECONDS = 20.0
_LARGEST_ANSWER = 1 << 16


def set_over_http(connect: Connect, password: str) -> None:
    """Sets the guest's clock to the current time; a guest whose user may not set the clock keeps the old time.

    Args:
        connect: Makes a connection to its control port.
        password: Its user's password.
    """
    command = f"echo {shlex.quote(password)} | sudo -S date --utc --set @{time.time():.3f}"
    client = http.client.HTTPConnection("localhost")
    try:
        client.sock = connect()
        client.sock.settimeout(SECONDS)
        body = json.dumps({"command": command, "shell": True})
        client.request("POST", "/execute", body, {"Content-Type": "application/json"})
        said = json.loads(client.getresponse().read(_LARGEST_ANSWER))
        if not isinstance(said, dict):
            raise ValueError("its answer is not an object")
        if said.get("returncode") != 0:
            log.warning("the clock of a VM could not be set after its reset: %s", str(said.get("error"))[-200:])
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        log.warning("the clock of a VM could not be set after its reset: %s", error)
    finally:
        client.close()
