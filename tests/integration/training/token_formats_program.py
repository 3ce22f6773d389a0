"""Reads an export of verl's rows with verl, and DART's folders with torch; run by verl's Python.

The arguments are the folder of the export and a file of JSON with the calls of each rollout. Says as JSON what it found.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import load_dataset
from tensordict import TensorDict
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.protocol import DataProto
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

FIELDS = (
    "prompt_ids",
    "response_ids",
    "response_mask",
    "response_logprobs",
    "reward_score",
    "num_turns",
    "extra_fields",
)


def outputs_of(folder: Path) -> tuple[list[dict[str, Any]], list[AgentLoopOutput]]:
    """Returns the rows, and each as verl has it."""
    rows = load_dataset("parquet", data_files=str(folder / "verl" / "rollouts.parquet"), split="train").to_list()
    made = []
    for row in rows:
        images = [folder / "verl" / name for name in row["multi_modal_data"]["images"]]
        assert all(image.is_file() for image in images)
        fields = {name: row[name] for name in FIELDS}
        made.append(AgentLoopOutput(**fields, metrics=AgentLoopMetrics(), multi_modal_data={"images": images}))
    return rows, made


def advantages_of(rows: list[dict[str, Any]], batch: TensorDict) -> list[float]:
    """Returns verl's advantage of each row's first sampled token."""
    data = DataProto.from_single_dict(
        {
            "response_mask": batch["response_mask"].to_padded_tensor(0),
            "token_level_rewards": batch["rm_scores"].to_padded_tensor(0.0),
        }
    )
    import numpy

    data.non_tensor_batch["uid"] = numpy.array([row["uid"] for row in rows], dtype=object)
    found = compute_advantage_for_multi_trajectories(data, [row["key"] for row in rows], "grpo").batch["advantages"]
    return [float(one[0]) for one in found]


def verl(folder: Path) -> dict[str, Any]:
    rows, outputs = outputs_of(folder)
    fields = []
    for output in outputs:
        field = output.as_dict()
        field.pop("multi_modal_data")
        field.setdefault("rollout_log_probs", torch.zeros_like(field["responses"], dtype=torch.float32))
        fields.append({name: field[name] for name in sorted(field)})
    batch = list_of_dict_to_tensordict(fields)
    assert batch["prompts"].is_nested
    assert len(batch) == len(rows)
    for row, prompt, response, mask in zip(
        rows, batch["prompts"].unbind(), batch["responses"].unbind(), batch["response_mask"].unbind(), strict=True
    ):
        assert prompt.tolist() == row["prompt_ids"]
        assert (response.tolist(), mask.tolist()) == (row["response_ids"], row["response_mask"])
    return {
        "rows": len(rows),
        "advantages": dict(zip([r["key"] for r in rows], advantages_of(rows, batch), strict=True)),
    }


def dart(folder: Path, expected: list[dict[str, Any]]) -> int:
    for made in expected:
        where = folder / "seed" / made["folder"]
        assert float((where / "reward.txt").read_text()) == made["reward"]
        pictures = torch.load(where / "images_data.pt", weights_only=True)
        for number, call in enumerate(made["calls"], 1):
            step = torch.load(where / f"data_for_step_{number}.pt", weights_only=True)
            assert step["prompt_token_ids"].tolist() == call["prompt_ids"]
            assert step["token_ids"].tolist() == call["output_ids"]
            assert step["token_ids"].dtype == torch.int64
            assert step["logp"].dtype == torch.float32
            assert torch.equal(step["logp"], torch.tensor(call["logprobs"], dtype=torch.float32))
            shown = [pictures["images"][place] for place in pictures["prompt_images"][number - 1].tolist()]
            assert [(where / name).stat().st_size > 0 for name in shown] == [True] * len(call["pictures"])
            prompt = (where / f"msg_for_prompt_{number}.json").read_text()
            assert [name for name in shown if name not in prompt] == []
        assert not (where / f"data_for_step_{len(made['calls']) + 1}.pt").exists()
    return len(list((folder / "seed").iterdir()))


if __name__ == "__main__":
    export = Path(sys.argv[1])
    json.dump({"verl": verl(export), "dart": dart(export, json.loads(Path(sys.argv[2]).read_text()))}, sys.stdout)
