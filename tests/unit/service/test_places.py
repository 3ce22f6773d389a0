"""A Redis that hangs delays no reply for long, and is asked by one call at a time."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from rollout_tasks.service.lending import places as module
from rollout_tasks.service.lending.places import WaitingPlaces
from rollout_tasks.settings import settings


def test_many_who_ask_wait_together_and_go_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as hanging:
        monkeypatch.setenv("ROLLOUT_REDIS_URL", f"redis://127.0.0.1:{hanging.getsockname()[1]}/0")
        settings.cache_clear()
        places = WaitingPlaces("default")

        async def ask() -> None:
            asked = await asyncio.gather(*(places.place(f"session-{n}") for n in range(200)))
            assert asked == [(None, None)] * 200
            assert await places.vms() is None
            began = time.monotonic()
            for _ in range(50):  # as a list of leases asks: one after the other
                await places.place("one")
            assert time.monotonic() - began < 2

        asyncio.run(ask())
        hanging.settimeout(0.2)
        connections = []
        with pytest.raises(TimeoutError):
            while True:
                connections.append(hanging.accept()[0])
        assert len(connections) == 1
        places.close()
        for one in connections:
            one.close()
