"""What is played with random answers: attempts with a hostile model, and attempts with a hostile guest."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import Verdict
from tests.hostile.mutations import Mutator
from tests.hostile.players import Player, complaints, in_turn
from tests.hostile.sample_files import SCREEN
from tests.hostile.sample_tasks import TASKS
from tests.hostile.stages import GOOD, GuestStage, ModelStage
from vm_pool.pool import VMPool
from vm_pool.states import Endpoint

MOST_PROBLEMS = 10
"""After these it is no use to go on."""


class Feed:
    """Cases of one kind, played by several players that each have ends of their own."""

    kind: str
    max_seconds: float
    """How long an attempt may take."""

    def __init__(self, folder: Path, number: int) -> None:
        """Opens the ends of so many players.

        Args:
            folder: Where the attempts' files go.
            number: How many players there are.
        """
        self.folder = folder
        self.played: list[tuple[dict[str, Any], Verdict]] = []
        self.problems: list[str] = []
        self._models = [ModelStage(self.max_seconds + 5) for _ in range(number)]
        self._choosing = threading.Lock()

    def close(self) -> None:
        """Closes the ends."""
        for model in self._models:
            model.end()

    def run(self, players: Sequence[Player], seeds: Iterator[int], seconds: float) -> None:
        """Plays one seed after the other, until there is none or so much time has passed."""

        def play(player: Player, number: int) -> None:
            self._warm_up(player, number)
            until = time.monotonic() + seconds
            while time.monotonic() < until and len(self.problems) < MOST_PROBLEMS:
                with self._choosing:
                    seed = next(seeds, None)
                if seed is None:
                    return
                self._play(player, number, seed)

        in_turn(players, play)

    def _warm_up(self, player: Player, number: int) -> None:
        """Has all go well first: what there is then is what there may be ever after."""
        for name in (f"first-{number}", f"second-{number}"):
            self._begin(number, GOOD)
            item, config = self._case(number, GOOD)
            found = player.play(item | {"id": name}, config, self.folder)
            assert found.get("verdict", {}).get("status") == "completed", found
            player.before = found

    def _play(self, player: Player, number: int, seed: int) -> None:
        self._begin(number, seed)
        item, config = self._case(number, seed)
        item["id"] = f"{self.kind}-{seed}"
        case = f"HOSTILE_SEED={seed} pytest tests/hostile/test_random_replies.py -k {self.kind} ({item['question']})"
        try:
            found = player.play(item, config, self.folder)
        except BaseException as error:
            error.add_note(case)
            raise
        wrong = complaints(found, player.before, self.max_seconds)
        if "verdict" in found:
            self.played.append((item, Verdict.from_dict(found["verdict"])))
            wrong += unreadable_files(RunFolder(self.folder), f"{item['id']}#0")
        self.problems += [f"{case}: {one}" for one in wrong]

    def _begin(self, number: int, seed: int | None) -> None:
        self._models[number].begin(seed)

    def _case(self, number: int, seed: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """The item and the run's configuration."""
        raise NotImplementedError

    def _config(self, number: int, **more: Any) -> dict[str, Any]:
        model = {"base_url": self._models[number].url, "name": "random", "timeout": 1.5, "max_retries": 2}
        return {"model": model, "limits": {"max_turns": 4, "max_seconds": self.max_seconds}, **more}


class ModelFeed(Feed):
    """A model that answers anything, in an environment that needs nothing else."""

    kind = "model"
    max_seconds = 3.0

    def _case(self, number: int, seed: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
        question = "How many are 3 bags of 12?"
        item = {"question": question, "answer": "36", "metadata": {}, "env_config": {}}
        return item, self._config(number, env_mode="math")


class GuestFeed(Feed):
    """A guest that answers anything, leased from a pool, and a model that is as it should be."""

    kind = "guest"
    max_seconds = 10.0

    def __init__(self, folder: Path, number: int, pools: Sequence[VMPool]) -> None:
        """Registers each player's guest in a pool of its own."""
        super().__init__(folder, number)
        self._guests = [GuestStage(self.max_seconds + 5) for _ in range(number)]
        self._pools = [pool.name for pool in pools]
        for pool, guest in zip(pools, self._guests, strict=True):
            pool.register("vm", Endpoint("127.0.0.1", guest.ports))

    def close(self) -> None:
        """See `Feed`."""
        super().close()
        for guest in self._guests:
            guest.end()

    def _begin(self, number: int, seed: int | None) -> None:
        self._models[number].begin(GOOD)
        self._guests[number].begin(seed)

    def _case(self, number: int, seed: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
        draw = Mutator(f"case {seed}").random
        name = "documents" if seed is GOOD else draw.choice(sorted(TASKS))
        item = {"question": name, "answer": "", "metadata": TASKS[name], "env_config": {}}
        kind = draw.choice(("screenshot", "a11y_tree", "screenshot_a11y_tree", "som"))
        desktop = {
            "screen_width": SCREEN[0],
            "screen_height": SCREEN[1],
            "sleep_after_execution": 0.0,
            "observation_type": "screenshot" if seed is GOOD else kind,
            "action_space": draw.choice(("computer_13", "pyautogui", "claude_computer_use")),
            "a11y": draw.choice(("outline", "osworld")),
            "require_terminal": draw.random() < 0.3,
            "enable_recording": draw.random() < 0.3,
        }
        vm = {"pool": self._pools[number], "wait_seconds": 20}
        return item, self._config(number, env_mode="osworld", desktop=desktop, vm=vm)


def unreadable_files(folder: RunFolder, rollout_id: str) -> list[str]:
    """The attempt's files that nobody could read afterwards."""
    wrong = []
    attempt = folder.attempt(rollout_id, 1)
    for path in (attempt / "result.json", attempt / "messages.json", attempt / "trajectory.jsonl"):
        if not path.exists():
            continue
        try:
            for line in path.read_text(encoding="utf-8").splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
                json.loads(line)
        except ValueError as error:
            wrong.append(f"{path.name} cannot be read: {error}")
    if not (attempt / "result.json").exists():
        wrong.append("there is no result.json")
    wrong += [f"{path.name} is left" for path in attempt.rglob("*") if path.name.startswith(".") or path.suffix == ".part"]
    return wrong
