"""Checkpoints of a few bytes, for tests of what reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_checkpoint(folder: Path, value: int = 1, *, config: Mapping[str, Any] | None = None) -> Path:
    """Writes one of two tensors, all of whose bytes have one value."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["Qwen2ForCausalLM"], **(config or {})}))
    write_tensors(folder / "model.safetensors", {"a.weight": ("F32", [2, 3]), "b.weight": ("BF16", [4])}, value)
    return folder


def write_tensors(path: Path, tensors: Mapping[str, tuple[str, list[int]]], value: int = 1) -> None:
    """Writes a file of tensors, given their types and shapes."""
    header, at = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = {"F32": 4, "I32": 4, "BF16": 2}[dtype]
        for number in shape:
            size *= number
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes([value]) * at)
