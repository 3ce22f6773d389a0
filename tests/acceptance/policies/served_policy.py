"""A tiny policy that vLLM serves, desktops on which it acts, and what is exported of its runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import redis

from benchmark import Benchmark
from rollout_tasks import RunConfig, RunResult, submit
from rollout_tasks.models.pool.replicas import Replica, Replicas
from tests.conftest import REPOSITORY
from tests.cpu_vllm import MINUTES, VARIABLES, command, run_script
from tests.integration.models.serving.conftest import Serving, ready

SCRIPTS = Path(__file__).parent
POOL, MODEL = "p", "policy"
OPTIONS = ("--max-model-len", "32768", "--max-num-seqs", "4", "--enforce-eager")
TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
RUN_SECONDS = 1_200.0


def trained(vllm: Path, folder: Path, lessons: Mapping[str, Any]) -> Path:
    """Returns the checkpoint of a policy that has learned to write certain replies."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lessons.json").write_text(json.dumps(lessons))
    print(run_script(vllm, SCRIPTS / "tiny_policy.py", folder / "step-1", folder / "lessons.json"))
    return folder / "step-1"


@contextmanager
def served(vllm: Path, folder: Path, redis_url: str, checkpoint: Path, dtype: str = "float32") -> Iterator[Replica]:
    """Serves a checkpoint in the pool; yields its server."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ("--", "--dtype", dtype, *OPTIONS, *TOOLS)
    serving = Serving(folder, redis_url, command(vllm), checkpoint, options, VARIABLES)
    try:
        with redis.Redis.from_url(redis_url, decode_responses=True) as client:
            yield ready(Replicas(client, POOL), 1, 60 * MINUTES / 3)[0]
    finally:
        serving.close()


@contextmanager
def own_environment(folder: Path) -> Iterator[None]:
    """A folder to work in, and no endpoint or Redis but those that are started."""
    before, environment = Path.cwd(), dict(os.environ)
    for name in ("REDIS_URL", "ROLLOUT_REDIS_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        os.environ.pop(name, None)
    os.environ["PYTHONPATH"] = str(REPOSITORY)
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(environment)


def write_tasks(folder: Path, tasks: Sequence[Mapping[str, Any]]) -> Path:
    """Writes tasks as OSWorld has them; returns the tree."""
    examples = folder / "examples" / "desktop"
    examples.mkdir(parents=True)
    for task in tasks:
        (examples / f"{task['id']}.json").write_text(json.dumps(task))
    (folder / "test_all.json").write_text(json.dumps({"desktop": [task["id"] for task in tasks]}))
    return folder


def rolled_out(tasks: Path, results: Path, run_id: str, options: Mapping[str, Any]) -> RunResult:
    """Rolls out tasks on the desktops of the services that run; returns when the run is over."""
    tokens = {"return_token_ids": True, "logprobs": True}
    desktop = {"observation_type": "screenshot", "sleep_after_execution": 0.3, "enable_recording": False}
    model = {"name": MODEL, "pool": POOL, "extra_body": tokens}
    values: dict[str, Any] = {"env_mode": "osworld", "output_dir": results, "run_id": run_id, **options}
    values["model"] = {**model, **values.get("model", {})}
    values["desktop"] = {**desktop, **values.get("desktop", {})}
    return submit(RunConfig.model_validate(values), Benchmark(tasks)).wait(RUN_SECONDS)


@dataclass(frozen=True)
class Export:
    """What a trainer has of a run: the two Parquet files and nothing else."""

    rows: list[dict[str, Any]]
    pictures: dict[str, bytes]
    """By SHA-256."""

    def said_by_model(self, vllm: Path, checkpoint: Path, folder: Path, dtype: str = "float32") -> list[dict[str, Any]]:
        """Returns what a forward pass of the model says of each row."""
        rows, pictures = self.written(folder)
        run_script(vllm, SCRIPTS / "forward_pass.py", checkpoint, rows, pictures, dtype, folder / "said.jsonl")
        return lines_of(folder / "said.jsonl")

    def written(self, folder: Path) -> tuple[Path, Path]:
        """Writes the rows for a script that has no pyarrow, and the pictures; returns the file and the folder."""
        (folder / "pictures").mkdir(parents=True, exist_ok=True)
        for name, content in self.pictures.items():
            (folder / "pictures" / name).write_bytes(content)
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        return folder / "rows.jsonl", folder / "pictures"


def read_export(*folders: Path) -> Export:
    """Reads the exports of runs."""
    rows: list[dict[str, Any]] = []
    pictures: dict[str, bytes] = {}
    for folder in folders:
        rows += parquet.read_table(folder / "traces.parquet").to_pylist()
        shown = parquet.read_table(folder / "pictures.parquet").to_pylist()
        pictures.update((one["sha256"], one["bytes"]) for one in shown)
    return Export(rows, pictures)


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]
