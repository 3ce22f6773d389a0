"""What verl's trainer does with an agent loop, with verl's own classes: `verl_program.py JOB.json`, run with verl's packages.

Its transfer-queue worker rolls out the rows of a batch, its replay buffer samples them, and its trainer computes their
advantages; then its worker for the older trainer rolls out others. What came of it is printed as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue as tq
import verl.trainer
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from tensordict.tensorclass import NonTensorData, NonTensorStack
from transformers import Qwen2VLForConditionalGeneration
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.trainer.ppo.v1 import AgentLoopWorkerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.workers.rollout.llm_server import LLMServerClient

from tests.integration.integrations.verl_engines import STEP, SayingClient, VllmClient

Job = dict[str, Any]


def config_of(job: Job) -> DictConfig:
    folder = Path(verl.trainer.__file__).parent / "config"
    rollout = "actor_rollout_ref.rollout"
    overrides = [
        f"actor_rollout_ref.model.path={job['checkpoint']}",
        f"{rollout}.name=vllm",
        f"{rollout}.n={job['n']}",
        f"{rollout}.prompt_length=2048",
        f"{rollout}.response_length=1024",
        f"{rollout}.calculate_log_probs=True",
        f"{rollout}.agent.agent_loop_config_path={job['agent_loops']}",
        "algorithm.adv_estimator=grpo",
        "algorithm.rollout_correction.bypass_mode=True",
        "transfer_queue.enable=True",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    ]
    with initialize_config_dir(config_dir=str(folder), version_base=None):
        config = compose("ppo_trainer", overrides=overrides)
    OmegaConf.resolve(config)
    return config


def columns_of(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """A batch's rows as verl's dataset has them."""
    return {
        "uid": [str(uuid.uuid4()) for _ in rows],
        "agent_name": [row["agent_loop"] for row in rows],
        "item": [json.dumps(row["item"]) for row in rows],
        "raw_prompt": [[{"role": "user", "content": row["item"]["question"]}] for row in rows],
        "data_source": ["test"] * len(rows),
        "index": list(range(len(rows))),
    }


def train(job: Job, config: DictConfig, client: LLMServerClient) -> dict[str, Any]:
    """As the trainer that verl starts by default."""
    tq.init(config.transfer_queue)
    worker = AgentLoopWorkerTQ.remote(config, client, None, None)
    columns = columns_of(job["rows"])
    uids, size = columns["uid"], [len(job["rows"])]
    batch = TensorDict({name: NonTensorStack(*values) for name, values in columns.items()}, batch_size=size)
    batch["global_steps"] = NonTensorData(STEP, batch_size=size)
    prompt = {"is_prompt": True, "status": "pending", "global_steps": STEP}
    tq.kv_batch_put(keys=uids, partition_id="train", tags=[prompt] * len(uids))
    ray.get(worker.generate_sequences.remote(batch))
    buffer = ReplayBuffer("sync", OmegaConf.create({}), None, "drop", OmegaConf.create({}), poll_interval=0.5)
    sampled, _ = buffer.sample(STEP, "train", len(uids))
    failed = sorted(uids.index(uid) for uid in buffer.failure_keys["train"])
    PPOTrainer._compute_advantage(SimpleNamespace(config=config), sampled, {})
    fields = tq.kv_batch_get(keys=sampled.keys, partition_id="train")
    model = Qwen2VLForConditionalGeneration.from_pretrained(job["checkpoint"]).eval() if job["url"] else None
    rows = [
        row_of(key, tag, fields[place], uids)
        for place, (key, tag) in enumerate(zip(sampled.keys, sampled.tags, strict=True))
    ]
    if model is not None:
        for place, row in enumerate(rows):
            row["farthest"] = farthest(model, fields[place])
    ray.kill(worker)
    return {"failed": failed, "rows": sorted(rows, key=lambda row: (row["row"], row["session"], row["index"]))}


def row_of(key: str, tag: dict[str, Any], row: TensorDict, uids: list[str]) -> dict[str, Any]:
    uid, session, index = key.rsplit("_", 2)
    tensors = ("prompts", "responses", "response_mask", "rollout_log_probs", "rm_scores", "advantages")
    pictures = row["multi_modal_inputs"].get("image_grid_thw")
    return {
        **{name: row[name].tolist() for name in tensors},
        "row": uids.index(uid),
        "session": int(session),
        "index": int(index),
        "num_turns": int(row["num_turns"]),
        "extra_fields": row["extra_fields"],
        "pictures": [] if pictures is None else pictures.tolist(),
        "steps": [tag["min_global_steps"], tag["max_global_steps"]],
    }


def farthest(model: Any, row: TensorDict) -> float:
    """The largest difference between a log-probability that was recorded and the one that the model itself has."""
    ids, positions = row["input_ids"].unsqueeze(0), row["position_ids"].unsqueeze(1)
    seen = {
        name: row["multi_modal_inputs"][name]
        for name in ("pixel_values", "image_grid_thw")
        if name in row["multi_modal_inputs"]
    }
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), position_ids=positions, **seen).logits[0]
    start = len(row["prompts"])
    own = torch.log_softmax(logits[start - 1 : -1].float(), -1).gather(1, row["responses"].unsqueeze(1)).squeeze(1)
    return float(((own - row["rollout_log_probs"]) * row["response_mask"]).abs().max())


def roll_out_padded(rows: list[dict[str, Any]], config: DictConfig, client: LLMServerClient) -> dict[str, Any]:
    """As the older trainer, whose worker pads to fixed lengths; returns what it has, or the last line of its error."""
    worker = ray.remote(AgentLoopWorker).remote(config, client, None, None)
    columns = {name: np.array(values, dtype=object) for name, values in columns_of(rows).items()}
    columns["raw_prompt"] = np.empty(len(rows), dtype=object)
    columns["raw_prompt"][:] = [[{"role": "user", "content": row["item"]["question"]}] for row in rows]
    try:
        batch = ray.get(worker.generate_sequences.remote(DataProto(non_tensor_batch=columns)))
    except ray.exceptions.RayTaskError as error:
        return {"error": str(error).strip().splitlines()[-1]}
    return {
        "rewards": batch.batch["rm_scores"].sum(1).tolist(),
        "sampled": batch.batch["response_mask"].sum(1).tolist(),
    }


def start_ray() -> None:
    """Starts Ray, which gives its own processes 30 s to start: a busy machine takes longer, and several tries."""
    for tries_left in reversed(range(10)):
        try:
            ray.init(num_cpus=4, include_dashboard=False)
        except Exception:
            ray.shutdown()
            if not tries_left:
                raise
        else:
            return


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    config = config_of(job)
    start_ray()
    client = VllmClient(config, job["url"]) if job["url"] else SayingClient(config)
    found = train(job, config, client)
    found["padded"] = [roll_out_padded(rows, config, client) for rows in job["padded"]]
    print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    main()
