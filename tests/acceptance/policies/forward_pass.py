"""What a model itself says of exported traces: its log-probability of each sampled token, by one forward pass over each trace.

`forward_pass.py CHECKPOINT ROWS PICTURES DTYPE OUTPUT`, run with vLLM's packages: ROWS has a JSON object for each trace,
PICTURES is the folder of their pictures. OUTPUT gets an object for each trace: ``logprobs`` of its sampled tokens in order,
or why the model ``refused`` it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from checkpoint_model import CheckpointModel


def main() -> None:
    checkpoint, rows, pictures, dtype, output = sys.argv[1:]
    policy = CheckpointModel(Path(checkpoint), Path(pictures), dtype)
    with Path(output).open("w") as file, torch.inference_mode():
        for line in Path(rows).read_text().splitlines():
            try:
                said: dict[str, Any] = {"logprobs": policy.logprobs(json.loads(line)).tolist()}
            except (IndexError, RuntimeError, StopIteration, ValueError) as error:
                said = {"refused": f"{type(error).__name__}: {error}"}
            file.write(json.dumps(said) + "\n")


main()
