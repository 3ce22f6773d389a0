"""Whatever a guest or a model sends, every attempt is classified and the worker stays whole.

A seed says what is sent. Failures name it, and how it alone is played again.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

import pytest
import redis

from benchmark.evaluation import evaluate
from benchmark.items import Item
from benchmark.report import BenchmarkInfo, read_report, write_markdown, write_report
from rollout_tasks.cells.room import CellsUnavailable, room
from rollout_tasks.environments.osworld.library import is_installed
from rollout_tasks.unicode_text import printable
from tests.hostile.feeds import Feed, GuestFeed, ModelFeed
from tests.hostile.players import players
from vm_pool.pool import VMPool

PLAYERS = 3
ONE_SEED = os.environ.get("HOSTILE_SEED")
KINDS = ("model", "guest")

Open = Callable[[str], Feed]


@pytest.fixture
def fed(tmp_path: Path, redis_url: str) -> Iterator[Callable[[str, Iterator[int], float], Feed]]:
    """Feeds answers of a kind: ``fed(kind, seeds, seconds)``."""
    with ExitStack() as opened:

        def feed(kind: str, seeds: Iterator[int], seconds: float) -> Feed:
            folder = tmp_path / "run"
            if kind == "guest":
                try:
                    room()
                except CellsUnavailable as reason:
                    pytest.skip(str(reason))
                client = opened.enter_context(closing(redis.Redis.from_url(redis_url, decode_responses=True)))
                pools = [opened.enter_context(closing(VMPool(client, f"random-{number}"))) for number in range(PLAYERS)]
                feed: Feed = opened.enter_context(closing(GuestFeed(folder, PLAYERS, pools)))
            else:
                feed = opened.enter_context(closing(ModelFeed(folder, PLAYERS)))
            environment = {"ROLLOUT_REDIS_URL": redis_url, "OPENAI_API_KEY": "the-key", "ROLLOUT_TRUST_TASKS": ""}
            children = opened.enter_context(players(tmp_path / "player", environment, PLAYERS))
            feed.run(children, iter([int(ONE_SEED)]) if ONE_SEED else seeds, seconds)
            return feed

        yield feed


def check(feed: Feed, report: Path) -> None:
    """Nothing went wrong, and a report can be made of how all ended."""
    assert not feed.problems, "\n".join(feed.problems)
    items = [Item.from_dict(item) for item, _ in feed.played]
    evaluation = evaluate(items, [verdict.as_result() for _, verdict in feed.played])
    info = BenchmarkInfo("random", "nowhere")
    write_report(report.with_suffix(".json"), evaluation, info)
    write_markdown(report, evaluation.overview, info)
    assert read_report(report.with_suffix(".json"))["summary"]["total_rollouts"] == len(items)
    assert printable(report.read_text(encoding="utf-8")) == report.read_text(encoding="utf-8")
    ended = Counter(str(verdict.failure_class or verdict.status) for _, verdict in feed.played)
    print(f"{len(items)} attempts of kind {feed.kind}: {dict(ended)}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample(kind: str, fed: Callable[[str, Iterator[int], float], Feed], tmp_path: Path) -> None:
    if kind == "guest" and not is_installed():
        pytest.skip("desktop-env is not installed")

    check(fed(kind, count(1000), 100.0), tmp_path / "report.md")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_for_minutes(kind: str, fed: Callable[[str, Iterator[int], float], Feed], tmp_path: Path) -> None:
    if kind == "guest" and not is_installed():
        pytest.skip("desktop-env is not installed")

    check(fed(kind, count(time.time_ns() // 1_000_000), 300.0), tmp_path / "report.md")
