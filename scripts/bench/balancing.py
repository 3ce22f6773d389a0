"""Our balancing of model calls beside round robin, least loaded and consistent hashing, and what a pick costs.

The replicas and the sessions are simulated (`serving`), so the latencies are of that model and not of this machine. Our
picks are the real ones, on a Valkey of the bench's own; the time they take is this machine's. Once all replicas are equal,
once the last one is half as fast. The policies of vllm-router have their turn, too, if its program is named: it is not
installed with this project. Prints tables of medians over the rounds; ``--json`` prints the figures. Not a test.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import redis
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rollout_tasks.models.pool.balancing import Balancer, NoReplica, Pick
from rollout_tasks.models.pool.replicas import Replicas, ReplicaState
from rollout_tasks.redis_client import connect
from scripts.bench import vllm_router
from scripts.bench.services import broker
from scripts.bench.serving import Load, Policy, Served, serve

POINTS = 64
"""How often each replica is on the ring of consistent hashing."""
COST_REPLICAS, COST_SESSIONS = 8, 1_000
"""For the cost of a pick: every session has one call in flight."""
OURS = "model pool"
SPEEDS = {"equal replicas": 1.0, "one replica at half speed": 0.5}


class RoundRobin:
    """Each replica in turn."""

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas
        self._number = -1

    def pick(self, _session: int) -> int:
        """Returns the next one."""
        self._number += 1
        return self._number % self._replicas

    def release(self, _session: int) -> None:
        """Does nothing."""


class LeastLoaded:
    """The replica with the fewest calls in flight, of several the least recently picked; sessions do not stick."""

    def __init__(self, replicas: int) -> None:
        self._last_pick = [0] * replicas
        self._in_flight: Counter[int] = Counter()
        self._where: dict[int, int] = {}
        self._number = 0

    def pick(self, session: int) -> int:
        """Returns the least loaded one, and counts the call there."""
        every = range(len(self._last_pick))
        chosen = min(every, key=lambda one: (self._in_flight[one], self._last_pick[one], one))
        self._number += 1
        self._last_pick[chosen] = self._number
        self._in_flight[chosen] += 1
        self._where[session] = chosen
        return chosen

    def release(self, session: int) -> None:
        """Counts the call no more."""
        self._in_flight[self._where.pop(session)] -= 1


class ConsistentHashing:
    """Always the same replica for a session, whatever the load."""

    def __init__(self, replicas: int) -> None:
        self._ring = sorted((_hash(f"{one}-{point}"), one) for one in range(replicas) for point in range(POINTS))

    def pick(self, session: int) -> int:
        """Returns the replica that follows the session on the ring."""
        place = bisect.bisect(self._ring, (_hash(f"session-{session}"), 0))
        return self._ring[place % len(self._ring)][1]

    def release(self, _session: int) -> None:
        """Does nothing."""


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


class ModelPool:
    """The pool's own picks, timed."""

    def __init__(self, client: redis.Redis, replicas: int) -> None:
        self._balancer = new_pool(client, replicas)
        self._picks: dict[int, Pick] = {}
        self.pick_seconds: list[float] = []

    def pick(self, session: int) -> int:
        """Asks Redis."""
        began = time.perf_counter()
        pick = self._balancer.pick(f"session-{session}")
        self.pick_seconds.append(time.perf_counter() - began)
        if isinstance(pick, NoReplica):
            raise RuntimeError(str(pick))
        self._picks[session] = pick
        return int(pick.replica.replica_id)

    def release(self, session: int) -> None:
        """Tells Redis."""
        self._balancer.release(self._picks.pop(session))


def new_pool(client: redis.Redis, replicas: int) -> Balancer:
    """Returns a balancer over that many replicas that are ready for an hour, in an empty Redis."""
    client.flushdb()
    pool = Replicas(client, "bench", silent_seconds=3600)
    for number in range(replicas):
        pool.register(
            f"{number}",
            f"{number}-first",
            base_url=f"http://127.0.0.1:{8000 + number}/v1",
            model="policy",
            weight_version="1",
            host="localhost",
            state=ReplicaState.READY,
        )
    return Balancer(client, "bench")


def pick_cost(client: redis.Redis) -> dict[str, float]:
    """Milliseconds of a pick for its caller, and of its script alone, with every session's first call in flight."""
    balancer = new_pool(client, COST_REPLICAS)
    balancer.pick("warm-up")
    client.config_resetstat()
    seconds = []
    for session in range(COST_SESSIONS):
        began = time.perf_counter()
        balancer.pick(f"session-{session}")
        seconds.append(time.perf_counter() - began)
    script: Any = client.info("commandstats")["cmdstat_evalsha"]
    return {**_spread("pick", seconds, 1000), "script_mean_ms": script["usec_per_call"] / 1000}


def measure(
    client: redis.Redis, load: Load, seed: int, rounds: int, router: Path | None
) -> dict[str, dict[str, float]]:
    """Medians over the rounds of each policy's figures."""
    policies: dict[str, Callable[[], AbstractContextManager[Policy]]] = {
        OURS: lambda: nullcontext(ModelPool(client, load.replicas)),
        "least loaded": lambda: nullcontext(LeastLoaded(load.replicas)),
        "consistent hashing": lambda: nullcontext(ConsistentHashing(load.replicas)),
        "round robin": lambda: nullcontext(RoundRobin(load.replicas)),
    }
    if router is not None:
        for router_policy in vllm_router.POLICIES:
            policies[f"vllm-router {router_policy}"] = partial(
                vllm_router.running, router, load.replicas, router_policy
            )
    found: dict[str, dict[str, float]] = {}
    for name, make in policies.items():
        samples = []
        for number in range(rounds):
            with make() as policy:
                samples.append(figures(serve(policy, load, seed + number)))
            if isinstance(policy, ModelPool):
                samples[-1] |= _spread("pick", policy.pick_seconds, 1000)
        found[name] = {column: statistics.median(sample[column] for sample in samples) for column in samples[0]}
    return found


def figures(served: Served) -> dict[str, float]:
    """The figures of one course: seconds of a call, the share of prompts found in a cache, the whole time."""
    return {
        **_spread("call", served.seconds, 1, "s", (50, 90)),
        "hits": served.cached_tokens / served.prompt_tokens,
        "makespan_s": served.makespan,
    }


def _spread(
    what: str, seconds: list[float], factor: float, unit: str = "ms", percents: tuple[int, ...] = (50, 99)
) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        f"{what}_p{percent}_{unit}": factor * ordered[min(len(ordered) * percent // 100, len(ordered) - 1)]
        for percent in percents
    }


COLUMNS = {
    "call_p50_s": ("call p50 s", ".2f"),
    "call_p90_s": ("p90 s", ".2f"),
    "hits": ("cache hits", ".1%"),
    "makespan_s": ("all s", ".0f"),
    "pick_p50_ms": ("pick p50 ms", ".3f"),
    "pick_p99_ms": ("p99 ms", ".3f"),
}
"""Column -> heading and number format."""


def show(cases: dict[str, dict[str, dict[str, float]]], cost: dict[str, float], load: Load) -> None:
    """Prints a table for each case, and the cost of a pick below them."""
    console = Console(width=max(Console().width, 132))
    about = f"{load.sessions} sessions of {load.turns} calls, {load.workers} at a time, {load.replicas} replicas"
    for case, policies in cases.items():
        console.print(_table(f"{about}: {case}", policies))
    console.print(
        f"a pick with {COST_REPLICAS} replicas and {COST_SESSIONS} calls in flight: p50 {cost['pick_p50_ms']:.3f} ms,"
        f" p99 {cost['pick_p99_ms']:.3f} ms, of which the script takes {cost['script_mean_ms']:.3f} ms",
        highlight=False,
    )


def _table(title: str, policies: dict[str, dict[str, float]]) -> Table:
    table = Table(title=title)
    table.add_column("", no_wrap=True)
    for heading, _format in COLUMNS.values():
        table.add_column(heading, justify="right")
    for name, policy_figures in policies.items():
        table.add_row(
            name,
            *[
                format(policy_figures[column], spec) if column in policy_figures else ""
                for column, (_, spec) in COLUMNS.items()
            ],
        )
    return table


def main(
    replicas: Annotated[int, typer.Option(min=1, help="Simulated replicas.")] = 3,
    workers: Annotated[int, typer.Option(min=1, help="Sessions at a time.")] = 64,
    sessions: Annotated[int, typer.Option(min=1, help="Sessions in all, of 20 calls each.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the table shows medians.")] = 3,
    seed: Annotated[int, typer.Option(help="What the first round's sessions are drawn from.")] = 0,
    router: Annotated[
        Path | None, typer.Option(help="The program vllm-router, to measure its policies beside.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measures the balancing of model calls beside others."""
    load = Load(replicas, workers, sessions)
    with broker():
        client = connect(tries=1)
        cases = {
            case: measure(client, replace(load, slowest=speed), seed, rounds, router) for case, speed in SPEEDS.items()
        }
        cost = pick_cost(client)
        client.close()
    if as_json:
        print(json.dumps({"cases": cases, "cost_of_a_pick": cost, "cores": os.cpu_count()}, indent=2))
    else:
        show(cases, cost, load)


if __name__ == "__main__":
    typer.run(main)
