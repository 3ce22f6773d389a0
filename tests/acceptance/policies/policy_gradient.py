"""One policy-gradient step over exported traces: `policy_gradient.py CHECKPOINT ROWS PICTURES RATE OUTPUT`, with vLLM's packages.

ROWS has a JSON object for each trace with the ``advantage`` of its rollout. Each rollout weighs the same, whatever its number of
traces and tokens. OUTPUT becomes a checkpoint with the new weights. It prints the loss.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from checkpoint_model import CheckpointModel


def main() -> None:
    checkpoint, rows, pictures, rate, output = sys.argv[1:]
    policy = CheckpointModel(Path(checkpoint), Path(pictures))
    traces = [json.loads(line) for line in Path(rows).read_text().splitlines()]
    rollouts = len({(one["item_id"], one["rollout"]) for one in traces})
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=float(rate))
    total = 0.0
    for trace in traces:
        now = policy.logprobs(trace)
        sampled = [one for one, is_sampled in zip(trace["logprobs"], trace["sampled"], strict=True) if is_sampled]
        ratio = (now - torch.tensor(sampled)).exp()
        loss = -(ratio * trace["advantage"]).mean() / rollouts
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
    optimizer.step()
    shutil.copytree(checkpoint, output, ignore=shutil.ignore_patterns("*.safetensors"))
    policy.model.save_pretrained(output)
    print(f"loss {total:.4f} over {len(traces)} traces of {rollouts} rollouts")


main()
