"""What verl's trainer does with an agent loop, with verl's own classes: `verl_program.py JOB.json`, run with verl's packages.

Its transfer-queue worker rolls out the rows of a batch, its replay buffer samples them, its trainer computes their advantages.
What came of it is printed as one line of JSON. The engine alone is not verl's: it says what a number of the row tells it to say.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections import Counter
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
from verl.trainer.ppo.v1 import AgentLoopWorkerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils import hf_tokenizer
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

STEP = 7


class SayingClient(LLMServerClient):
    """Presses a number twice, and ends: every other rollout the right one. Where no tools are on offer, it says 42 or 41."""

    def __init__(self, config: DictConfig, checkpoint: str) -> None:
        super().__init__(config)
        self._checkpoint = checkpoint
        self._calls: Counter[str] = Counter()

    async def generate(self, request_id: str, **asked: Any) -> TokenOutput:
        tokenizer = hf_tokenizer(self._checkpoint)
        prompt, ids = tokenizer.decode(asked["prompt_ids"]), asked["prompt_ids"]
        image = tokenizer.convert_tokens_to_ids("<|image_pad|>")
        runs = sum(one == image and before != image for before, one in zip([0, *ids], ids, strict=False))
        assert runs == len(asked["image_data"] or ()), f"{runs} places, {len(asked['image_data'] or ())} pictures"
        self._calls[request_id] += 1
        right = list(self._calls).index(request_id) % 2 == 0
        if "Tools: " not in prompt:
            said = f"So it is {42 if right else 41}."
        elif self._calls[request_id] <= 2:
            press = {"name": "press", "arguments": {"number": 1 if right else 2}}
            said = f"I press.<tool_call>\n{json.dumps(press)}\n</tool_call>"
        else:
            said = "It is done."
        output = tokenizer.encode(f"{said}<|im_end|>", add_special_tokens=False)
        step = STEP + self._calls[request_id]
        return TokenOutput(
            token_ids=output,
            log_probs=[-0.125 * (1 + place % 4) for place in range(len(output))]
            if asked["sampling_params"]["logprobs"]
            else None,
            stop_reason="completed",
            extra_fields={"global_steps": step, "min_global_steps": step, "max_global_steps": step},
        )


def config_of(job: dict[str, Any]) -> DictConfig:
    folder = Path(verl.trainer.__file__).parent / "config"
    with initialize_config_dir(config_dir=str(folder), version_base=None):
        config = compose(
            "ppo_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={job['checkpoint']}",
                "actor_rollout_ref.rollout.name=vllm",
                f"actor_rollout_ref.rollout.n={job['n']}",
                "actor_rollout_ref.rollout.prompt_length=2048",
                "actor_rollout_ref.rollout.response_length=2048",
                "actor_rollout_ref.rollout.calculate_log_probs=True",
                f"actor_rollout_ref.rollout.agent.agent_loop_config_path={job['agent_loops']}",
                "actor_rollout_ref.rollout.agent.default_agent_loop=rollouts",
                "algorithm.adv_estimator=grpo",
                "algorithm.rollout_correction.bypass_mode=True",
                "transfer_queue.enable=True",
                "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
            ],
        )
    OmegaConf.resolve(config)
    return config


def batch_of(job: dict[str, Any]) -> TensorDict:
    """The rows as the trainer sends them to its workers."""
    rows = job["items"]
    columns: dict[str, list[Any]] = {
        "uid": [str(uuid.uuid4()) for _ in rows],
        "item": [json.dumps(item) for item in rows],
        "raw_prompt": [[{"role": "user", "content": item["question"]}] for item in rows],
        "data_source": ["test"] * len(rows),
        "index": list(range(len(rows))),
    }
    batch = TensorDict({name: NonTensorStack(*values) for name, values in columns.items()}, batch_size=[len(rows)])
    batch["global_steps"] = NonTensorData(STEP, batch_size=[len(rows)])
    return batch


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    config = config_of(job)
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=True)
    tq.init(config.transfer_queue)
    worker = AgentLoopWorkerTQ.remote(config, SayingClient(config, job["checkpoint"]), None, None)
    batch = batch_of(job)
    uids = [batch[place]["uid"] for place in range(len(batch))]
    tq.kv_batch_put(
        keys=uids,
        partition_id="train",
        tags=[{"is_prompt": True, "status": "pending", "global_steps": STEP}] * len(uids),
    )
    ray.get(worker.generate_sequences.remote(batch))
    buffer = ReplayBuffer("sync", OmegaConf.create({}), None, "drop", OmegaConf.create({}), poll_interval=0.5)
    sampled, _ = buffer.sample(STEP, "train", len(uids))
    failed = sorted(uids.index(uid) for uid in buffer.failure_keys["train"])
    PPOTrainer._compute_advantage(SimpleNamespace(config=config), sampled, {})
    rows = tq.kv_batch_get(keys=sampled.keys, partition_id="train")
    print(
        "RESULT "
        + json.dumps({"failed": failed, "rows": [row_of(sampled, rows, uids, n) for n in range(len(sampled.keys))]})
    )


def row_of(sampled: Any, rows: TensorDict, uids: list[str], number: int) -> dict[str, Any]:
    uid, session, index = sampled.keys[number].rsplit("_", 2)
    row = rows[number]
    found = {
        name: row[name].tolist()
        for name in ("prompts", "responses", "response_mask", "rollout_log_probs", "rm_scores", "advantages")
    }
    pictures = row["multi_modal_inputs"].get("image_grid_thw")
    return {
        **found,
        "item": uids.index(uid),
        "session": int(session),
        "index": int(index),
        "num_turns": int(row["num_turns"]),
        "extra_fields": row["extra_fields"],
        "pictures": [] if pictures is None else torch.as_tensor(pictures).tolist(),
        "positions": list(row["position_ids"].shape),
        "tag": {name: value for name, value in sampled.tags[number].items() if isinstance(value, int | str)},
    }


if __name__ == "__main__":
    np.random.seed(0)
    main()
