"""Whatever a guest or a model sends, every attempt is classified and the worker stays whole.

A seed says what is sent. A failure names it, and how it alone is played again.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

import pytest
import redis

from benchmark.evaluation import evaluate
from benchmark.items import Item
from benchmark.markdown_report import write_markdown
from benchmark.report import BenchmarkInfo, read_report, write_report
from rollout_tasks.cells.filesystem import CellsUnavailable, cell_filesystem
from rollout_tasks.config import parse_config
from rollout_tasks.environments.osworld.desktop_env_import import is_installed
from rollout_tasks.errors import FailureClass
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.trajectories.reader import TrajectoryError, read_trajectory
from rollout_tasks.trajectories.writer import RECORD_NAME
from rollout_tasks.unicode_text import printable
from tests.cells_here import no_cells_here
from tests.hostile.random_replies.guest import GuestStage
from tests.hostile.random_replies.model import ModelStage
from tests.hostile.random_replies.player import BEYOND_SECONDS, Played, Player, opened_players
from vm_pool.gate_login import VARIABLE
from vm_pool.pool import VMPool

PLAYERS = 3
MOST_MEMORY = 800 << 20
"""Bytes of a process that plays attempts; the largest answer that is read takes less than half of it."""
MOST_PROBLEMS = 10
"""After these it is no use to go on."""
SECRETS = ("sk-8d1f7a52c9e0", "gate-4b7e19ac")

Stage = ModelStage | GuestStage


class Cases:
    """Attempts, each with a seed of its own, played by several players for a while."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ended: list[tuple[Item, Verdict]] = []
        self.problems: list[str] = []
        self.peak = 0
        self._choosing = threading.Lock()

    def play(self, player: Player, stage: Stage, seeds: Iterator[int], seconds: float) -> None:
        """Plays one seed after the other, after an attempt in which all goes well."""
        item, config = stage.begin(None)
        own = self.folder.with_name(
            f"first-{threading.get_native_id()}"
        )  # each player begins with an item of this name
        first = player.play(item, parse_config(config), own)
        assert first.verdict is not None, first.escaped
        assert first.verdict.status == "completed", first.verdict
        until = time.monotonic() + seconds
        while time.monotonic() < until and len(self.problems) < MOST_PROBLEMS:
            with self._choosing:
                seed = next(seeds, None)
            if seed is None:
                return
            item, config = stage.begin(seed)
            again = f"HOSTILE_SEED={seed} pytest tests/hostile/test_random_replies.py -k 'sample and {stage.kind}'"
            try:
                played = player.play(item, parse_config(config), self.folder)
            except BaseException as error:
                error.add_note(again)
                raise
            self.peak = max(self.peak, played.peak)
            if played.verdict is not None:
                self.ended.append((item, played.verdict))
            wrong = [*complaints(played, stage), *self._complaints_of_files(item)]
            self.problems += [f"{again}: ({item.question}) {one}" for one in wrong]

    def _complaints_of_files(self, item: Item) -> Iterator[str]:
        """Of what the attempt left for others to read."""
        attempt = RunFolder(self.folder).attempt(f"{item.id}#0", 1)
        try:
            if (attempt / RECORD_NAME).exists():
                read_trajectory(attempt)
        except TrajectoryError as error:
            yield f"its trajectory cannot be read: {error}"
        for path in attempt.rglob("*"):
            if path.name.startswith(".") or path.suffix == ".part":
                yield f"{path.name} is left"
            if path.is_file() and any(secret.encode() in path.read_bytes() for secret in SECRETS):
                yield f"{path.name} has a secret"


def complaints(played: Played, stage: Stage) -> Iterator[str]:
    """What an attempt must not do, as far as it did."""
    if played.escaped:
        yield played.escaped
    yield from played.grown
    if (verdict := played.verdict) is None:
        return
    if verdict.status == "completed":
        if verdict.failure_class is not None or (verdict.score is not None and not 0 <= verdict.score <= 1):
            yield f"it completed with {verdict.failure_class} and the score {verdict.score}"
    elif verdict.status != "failed" or verdict.failure_class in {None, FailureClass.INTERNAL} or not verdict.error:
        yield f"it ended as {verdict.status}, of the class {verdict.failure_class}: {verdict.error}"
    if printable(verdict.error) != verdict.error:
        yield f"its sentence steers a terminal: {verdict.error!r}"
    if played.seconds > stage.max_seconds + BEYOND_SECONDS:
        yield f"it took {played.seconds:.1f} s, and may take {stage.max_seconds:g} s"
    if played.alarm:
        yield "its alarm still goes"
    if played.peak > MOST_MEMORY:
        yield f"its process had {played.peak >> 20} MiB"


@pytest.fixture(params=["model", "guest"])
def stages(
    request: pytest.FixtureRequest, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Sequence[Stage]]:
    """The hostile end of each player."""
    key, gate_key = SECRETS
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.setenv("ROLLOUT_REDIS_URL", redis_url)
    monkeypatch.setenv("ROLLOUT_TRUST_TASKS", "")
    monkeypatch.setenv(VARIABLE, gate_key)
    with ExitStack() as opened:
        stages: list[Stage] = []
        if request.param == "model":
            stages += [opened.enter_context(closing(ModelStage(key))) for _ in range(PLAYERS)]
        else:
            if not is_installed():
                pytest.skip("desktop-env is not installed")
            try:
                cell_filesystem()
            except CellsUnavailable as reason:
                no_cells_here(str(reason))
            client = opened.enter_context(closing(redis.Redis.from_url(redis_url, decode_responses=True)))
            for number in range(PLAYERS):
                pool = opened.enter_context(closing(VMPool(client, f"random-{number}")))
                stages.append(opened.enter_context(closing(GuestStage(pool, SECRETS))))
        yield stages


def play(stages: Sequence[Stage], folder: Path, seeds: Iterator[int], seconds: float) -> None:
    """Nothing goes wrong, and a report can be made of how all ended."""
    if (one := os.environ.get("HOSTILE_SEED")) is not None:
        seeds = iter([int(one)])
    cases = Cases(folder / "run")
    cells = stages[0].kind == "guest"
    with opened_players(folder / "player", PLAYERS, cells=cells) as players, ThreadPoolExecutor(PLAYERS) as threads:
        playing = [
            threads.submit(cases.play, player, stage, seeds, seconds)
            for player, stage in zip(players, stages, strict=True)
        ]
    log = (folder / "player" / "log").read_text(errors="replace")
    print(log[-4000:])
    for one_playing in playing:
        one_playing.result()
    assert not cases.problems, "\n".join(cases.problems)
    assert not [mistake for stage in stages for mistake in stage.mistakes]
    assert not any(secret in log for secret in SECRETS)
    evaluation = evaluate([item for item, _ in cases.ended], [verdict.as_result() for _, verdict in cases.ended])
    info = BenchmarkInfo("random", "nowhere")
    write_report(folder / "report.json", evaluation, info)
    write_markdown(folder / "report.md", evaluation.overview, info)
    assert read_report(folder / "report.json")["summary"]["total_rollouts"] == len(cases.ended) > 0
    assert printable(text := (folder / "report.md").read_text(encoding="utf-8")) == text
    ends = Counter(str(verdict.failure_class or verdict.status) for _, verdict in cases.ended)
    print(f"{len(cases.ended)} attempts of kind {stages[0].kind}, {cases.peak >> 20} MiB at most: {dict(ends)}")


def test_a_sample(stages: Sequence[Stage], tmp_path: Path) -> None:
    play(stages, tmp_path, count(1000), 2.0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_for_minutes(stages: Sequence[Stage], tmp_path: Path) -> None:
    play(stages, tmp_path, count(time.time_ns() // 1_000_000), 300.0)
