"""`run_parallel_rollout` as programs written for the multi-process rollout framework call it: the same names, this pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import SimpleNamespace
from typing import Any

from benchmark.benchmark import Benchmark
from rollout_tasks.api import RunResult, run
from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import Verdict, rollout_ids, split_rollout_id
from rollout_tasks.trajectories.writer import MESSAGES_NAME

_VM = ("provider_name", "path_to_vm", "region", "snapshot_name")
_DESKTOP = (
    *("action_space", "observation_type", "screen_width", "screen_height", "headless", "os_type", "client_password"),
    *("require_a11y_tree", "require_terminal", "sleep_after_execution", "enable_recording"),
)
_MODEL = {"model_name": ("model", "name"), "openai_api_url": ("model", "base_url")}
_ENVIRONMENT_OPTIONS = {
    **{name: ("vm", name) for name in _VM},
    **{name: ("desktop", name) for name in _DESKTOP},
    **_MODEL,
}
"""Where a run's configuration has what `env_kwargs` calls so."""
_AGENT_OPTIONS = {
    **_MODEL,
    "evaluation_metric": ("metric",),
    "max_turns": ("limits", "max_turns"),
    "max_retries": ("model", "max_retries"),
    "save_results": ("save_results",),
    "evaluate_results": ("evaluate_results",),
}
"""Likewise for `agent_config_dict`."""
_SECRETS = frozenset({"openai_api_key", "api_key"})


@dataclass
class ParallelRolloutConfig:
    """What a run is to be, by the names of the multi-process framework. `run_config` is what it means here."""

    num_rollouts: int = 5
    """How many rollouts at a time."""
    num_vms: int = 3
    """How many VMs they share."""
    env_mode: str = "osworld"
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    agent_config_dict: Mapping[str, Any] = field(default_factory=dict)
    output_dir: str = "results"
    use_resource_pool: bool = True
    """Whether rollouts share VMs; without, each has its own."""

    def run_config(self) -> RunConfig:
        """The run's configuration.

        Raises:
            UserError: There is no such option, or a value is wrong.
        """
        values: dict[str, Any] = {
            "num_rollouts": self.num_rollouts,
            "env_mode": self.env_mode,
            "output_dir": str(self.output_dir),
            "vm": {"num_vms": self.num_vms, "use_pool": self.use_resource_pool},
        }
        _put(values, "env_kwargs", self.env_kwargs, _ENVIRONMENT_OPTIONS)
        _put(values, "agent_config_dict", self.agent_config_dict, _AGENT_OPTIONS)
        return parse_config(values)


def run_parallel_rollout(config: ParallelRolloutConfig, benchmark: Benchmark) -> dict[str, Any]:
    """Rolls out a benchmark on this machine and scores it.

    Args:
        config: The run's.
        benchmark: What is asked.

    Returns:
        ``worker_results``, a mapping for each rollout (``task_id``, ``question``, ``answer``, ``messages``, ``success``,
        ``error``, ``evaluation_score``), also for those that were cancelled before they began; ``benchmark_evaluation``, for each
        item an object with ``item_id``, ``question``, ``ground_truth``, ``prediction``, ``score``, ``metric_name`` and
        ``details``; ``summary``, the report's figures; ``output_dir``, the run's folder.

    Raises:
        UserError: An option, the data or a service cannot be used, or the run was stopped.
    """
    result = run(config.run_config(), benchmark, show_progress=True)
    return {
        "worker_results": list(_worker_results(result)),
        "benchmark_evaluation": [SimpleNamespace(**row) for row in result.rows()] if result.summary else [],
        "summary": dict(result.summary),
        "output_dir": str(result.folder),
    }


def _put(values: dict[str, Any], name: str, given: Mapping[str, Any], places: Mapping[str, tuple[str, ...]]) -> None:
    for key, value in given.items():
        if key in _SECRETS:
            raise UserError(f"{name}: {key} is a secret: set OPENAI_API_KEY in the environment, or in .env")
        if key not in places:
            close = get_close_matches(key, places, n=1)
            raise UserError(f"{name}: {key} is not an option" + (f"; did you mean {close[0]}?" if close else ""))
        *above, last = places[key]
        part = values
        for step in above:
            part = part.setdefault(step, {})
        part[last] = value


def _worker_results(result: RunResult) -> Iterator[dict[str, Any]]:
    folder = RunFolder(result.folder)
    config = folder.description.config()
    questions = {item.id: item.question for item in folder.description.each_item()}
    for rollout_id in rollout_ids(folder.description.each_item(), config.rollouts_per_item):
        verdict = folder.final_verdict(rollout_id)
        item_id, _ = split_rollout_id(verdict.rollout_id)
        yield {
            "task_id": item_id,
            "question": questions[item_id],
            "answer": verdict.answer,
            "messages": _messages(folder, verdict),
            "success": verdict.status == "completed",
            "error": verdict.error or None,
            "evaluation_score": verdict.score,
        }


def _messages(folder: RunFolder, verdict: Verdict) -> list[Any]:
    try:
        text = (folder.attempt(verdict.rollout_id, verdict.attempt) / MESSAGES_NAME).read_text(encoding="utf-8")
    except OSError:
        return []
    messages: list[Any] = json.loads(text)["messages"]
    return messages
