"""Borrowers and hosts as processes of their own, to be killed, paused and cut off. Run as: actors.py ROLE URL ARGUMENT..."""

from __future__ import annotations

import logging
import os
import sys
import threading

import redis

from vm_pool import LeaseLost, VMPool
from vm_pool.host import VMHost
from vm_pool.providers import load_provider


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def hold(pool: VMPool, ttl: str) -> None:
    """Acquires, says so, and says when the lease was lost; holds on until killed."""
    lease = pool.acquire("actor", timeout=60, ttl=float(ttl))
    say(f"holding {lease.vm_id} {lease.fence}")
    lease.lost.wait()
    try:
        lease.check()
    except LeaseLost:
        say("lost")
    say(f"released {lease.release()}")


def crowd(pool: VMPool, ttl: str, number: str) -> None:
    """So many processes that do what `hold` does."""
    for _ in range(int(number) - 1):
        if os.fork() == 0:
            break
    hold(pool, ttl)


def touch(pool: VMPool, ttl: str) -> None:
    """Acquires, then checks before each touch, a line from stdin being the order to touch."""
    lease = pool.acquire("actor", timeout=60, ttl=float(ttl))
    say(f"holding {lease.vm_id} {lease.fence}")
    for _ in sys.stdin:
        try:
            lease.check()
            say("touched")
        except LeaseLost:
            say("refused")


def host(pool: VMPool, num_vms: str, host_id: str, fail_file: str = "") -> None:
    """Looks after simulated VMs until killed."""
    logging.basicConfig(level=logging.INFO)
    options = {"boot_seconds": 0.05, "reset_seconds": 0.02} | ({"fail_resets_while": fail_file} if fail_file else {})
    provider = load_provider("simulated", options)
    VMHost(pool, provider, num_vms=int(num_vms), host_id=host_id, silent_after=1.5, retry_after=(0.1, 0.5)).run(
        threading.Event()
    )


if __name__ == "__main__":
    role, url, *rest = sys.argv[1:]
    {"hold": hold, "crowd": crowd, "touch": touch, "host": host}[role](VMPool(redis.Redis.from_url(url), "test"), *rest)
