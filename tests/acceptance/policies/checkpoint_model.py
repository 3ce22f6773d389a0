"""A checkpoint's model and picture processor, and what they say of exported traces. For scripts that run with vLLM's packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageTextToText

THREADS = 1


class CheckpointModel:
    """The model, with which exported traces are read. Their ids are given to it as they are."""

    def __init__(self, checkpoint: Path, pictures: Path, dtype: str = "float32") -> None:
        """Loads it.

        Args:
            checkpoint: Its folder.
            pictures: The folder of the traces' pictures, named by their SHA-256.
            dtype: What it computes with.
        """
        torch.set_num_threads(THREADS)
        self.model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=getattr(torch, dtype)).eval()
        self._processor = AutoImageProcessor.from_pretrained(checkpoint)
        self._folder = pictures
        self._seen: dict[str, Any] = {}

    def logprobs(self, row: dict[str, Any]) -> torch.Tensor:
        """Returns the log-probability of each sampled token of a trace, by one forward pass.

        Args:
            row: With ``ids``, ``sampled`` and ``pictures``, as exported.

        Raises:
            RuntimeError: The ids have another number of places for pictures than the pictures need.
            ValueError: The same.
        """
        ids = torch.tensor([row["ids"]])
        logits = self.model(**self._inputs(ids, row["pictures"])).logits[0, :-1].float()
        found = logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        return found[torch.tensor(row["sampled"][1:])]

    def _inputs(self, ids: torch.Tensor, pictures: list[str]) -> dict[str, torch.Tensor]:
        inputs = {"input_ids": ids, "mm_token_type_ids": (ids == self.model.config.image_token_id).int()}
        if pictures:
            seen = [self._picture(name) for name in pictures]
            inputs["pixel_values"] = torch.cat([one["pixel_values"] for one in seen]).to(self.model.dtype)
            inputs["image_grid_thw"] = torch.cat([one["image_grid_thw"] for one in seen])
        return inputs

    def _picture(self, name: str) -> Any:
        if name not in self._seen:
            with Image.open(self._folder / name) as picture:
                self._seen[name] = self._processor([picture.convert("RGB")], return_tensors="pt")
        return self._seen[name]
