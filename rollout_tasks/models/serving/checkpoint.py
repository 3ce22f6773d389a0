"""What a checkpoint's files say of its weights, read from their headers: whether all are there, whole, and of which model.

Format: https://github.com/huggingface/safetensors. A file has the length of its header (8 bytes, little-endian), the header (JSON:
the type, shape and place of each tensor), and the tensors, one after the other. None of these is read here.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

_INDEX = "model.safetensors.index.json"
_CONFIG = "config.json"
_LONGEST_JSON = 100 << 20
_PIECE = 16 << 20
_HEAD = "lm_head.weight"
_FLOATS = frozenset({"F32", "F16", "BF16"})
"""A server that loads one of these has it in its own type."""
_NOT_OF_THE_MODEL = frozenset({"_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"})
_OTHER_FILES = (
    "tokenizer*",
    "*chat_template*",
    "generation_config.json",
    "*processor_config.json",
    "vocab.*",
    "merges.txt",
)
_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8", "U8", "BOOL"), 8),
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
}
"""Bits of a number of each type."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint whose files are there and whole."""

    folder: Path
    architectures: tuple[str, ...]
    config: Mapping[str, Any]
    tensors: Mapping[str, tuple[str, tuple[int, ...]]]
    """Type and shape of each tensor, by its name."""
    places: Mapping[str, tuple[Path, int, int]]
    """Where each tensor is: its file, and the first byte and the one after the last."""
    fingerprint: str
    """Differs when a file's content, size or time of writing does, except for tensors of a file that was touched up."""


def read_checkpoint(folder: Path) -> Checkpoint:
    """Returns what a checkpoint's headers say.

    Raises:
        ValueError: It cannot be loaded; says which file is missing or broken.
    """
    config = _json_file(folder / _CONFIG)
    architectures = config.get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(one, str) for one in architectures):
        raise ValueError(f"{folder / _CONFIG}: architectures must be a list of names")
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
    places: dict[str, tuple[Path, int, int]] = {}
    digest = hashlib.sha256()
    wanted = _files(folder)
    for name in sorted(set(wanted.values())) or _without_index(folder):
        path = folder / name
        header, begins, size, written = _header(path)
        digest.update(json.dumps([name, size, written]).encode() + json.dumps(header, sort_keys=True).encode())
        for tensor, entry in header.items():
            if tensor in tensors:
                raise ValueError(f"{path}: the tensor {tensor[:100]!r} is in another file, too")
            tensors[tensor] = (entry["dtype"], tuple(entry["shape"]))
            first, after = entry["data_offsets"]
            places[tensor] = (path, begins + first, begins + after)
    if missing := sorted(wanted.keys() - tensors.keys()):
        raise ValueError(f"{folder / _INDEX}: names the tensor {missing[0][:100]!r}, which is in no file")
    return Checkpoint(folder, tuple(architectures), config, tensors, places, digest.hexdigest())


def difference(old: Checkpoint, new: Checkpoint) -> str:
    """Returns what makes a checkpoint one of another model than another, as the rest of a sentence about it; empty if nothing."""
    if old.architectures != new.architectures:
        return (
            f"is for {', '.join(new.architectures) or 'no model'}, not for {', '.join(old.architectures) or 'no model'}"
        )
    tied = old.config.get("tie_word_embeddings") is True and new.config.get("tie_word_embeddings") is True
    may_lack = {_HEAD} if tied else set()
    if missing := sorted(old.tensors.keys() - new.tensors.keys() - may_lack):
        return f"lacks the tensor {missing[0][:100]!r}{_more(missing)}"
    if extra := sorted(new.tensors.keys() - old.tensors.keys() - may_lack):
        return f"has a tensor more, {extra[0][:100]!r}{_more(extra)}"
    for name, (dtype, shape) in sorted(old.tensors.items()):
        new_dtype, new_shape = new.tensors.get(name, (dtype, shape))
        if shape != new_shape or (dtype != new_dtype and not {dtype, new_dtype} <= _FLOATS):
            return f"has {name[:100]!r} as {new_dtype} of shape {list(new_shape)}, not {dtype} of shape {list(shape)}"
    return ""


def notes(old: Checkpoint, new: Checkpoint) -> str:
    """Returns what else differs, which a server does not load anew; empty if nothing."""
    keys = {
        key
        for key in (old.config.keys() | new.config.keys()) - _NOT_OF_THE_MODEL
        if old.config.get(key) != new.config.get(key)
    }
    files = {
        path.name
        for folder in (old.folder, new.folder)
        for pattern in _OTHER_FILES
        for path in folder.glob(pattern)
        if _content(old.folder / path.name) != _content(new.folder / path.name)
    }
    found = [*(f"{key} in {_CONFIG}" for key in sorted(keys)), *sorted(files)]
    return f"until it is started again, it has the earlier {', '.join(found)}" if found else ""


def _content(path: Path) -> bytes | None:
    try:
        return hashlib.sha256(path.read_bytes()).digest() if path.stat().st_size <= _LONGEST_JSON else None
    except OSError:
        return None


def folder_of(checkpoint: str) -> Path | None:
    """Returns the folder of a checkpoint, given as vLLM takes it: a folder, or a name at its hub, whose files are in a cache."""
    folder = Path(checkpoint)
    if folder.is_dir():
        return folder
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub") / f"models--{checkpoint.replace('/', '--')}"
    try:
        snapshot = cache / "snapshots" / (cache / "refs" / "main").read_text(encoding="ascii").strip()
        return snapshot if snapshot.is_dir() else None
    except (OSError, ValueError):
        return None


def same_weights(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether all tensors of two checkpoints of one model are equal. Reads both."""
    return all(
        first == second
        for name, place in one.places.items()
        for first, second in zip_longest(_pieces(*place), _pieces(*other.places[name]))
    )


def _pieces(path: Path, begin: int, end: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(begin)
        while begin < end:
            yield file.read(min(_PIECE, end - begin))
            begin += _PIECE


def _more(names: list[str]) -> str:
    return f" and {len(names) - 1} others" if len(names) > 1 else ""


def _files(folder: Path) -> Mapping[str, str]:
    """Returns in which file each tensor is, by the index; nothing where there is none."""
    if not (folder / _INDEX).exists():
        return {}
    files = _json_file(folder / _INDEX).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise ValueError(f"{folder / _INDEX}: weight_map must say in which file each tensor is")
    for name in files.values():
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise ValueError(f"{folder / _INDEX}: {str(name)[:100]!r} is not the name of a .safetensors file beside it")
    return files


def _without_index(folder: Path) -> list[str]:
    """Returns the names of the files with tensors: all that are there, as vLLM loads them."""
    found = sorted(path.name for path in folder.glob("*.safetensors"))
    if not found:
        raise ValueError(f"{folder} has no .safetensors file")
    return found


def _header(path: Path) -> tuple[dict[str, Any], int, int, int]:
    """Returns a file's tensors, the byte at which the first begins, its size in bytes, and when it was written."""
    _check_kind(path)
    try:
        with path.open("rb") as file:
            is_now = os.fstat(file.fileno())
            length = int.from_bytes(file.read(8), "little")
            if is_now.st_size < 8 or length > min(_LONGEST_JSON, is_now.st_size - 8):
                raise ValueError(f"{path}: is cut off, or no safetensors file")
            try:
                header = json.loads(file.read(length))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}: its header cannot be read: {str(error)[:200]}") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path}: its header is no object")
    header.pop("__metadata__", None)
    _check_places(path, header, is_now.st_size - 8 - length)
    return header, 8 + length, is_now.st_size, is_now.st_mtime_ns


def _check_places(path: Path, header: Mapping[str, Any], room: int) -> None:
    """Checks that the tensors fill the rest of the file, without gaps."""
    places = []
    for name, entry in header.items():
        try:
            bits, shape, (begin, end) = _BITS[entry["dtype"]], entry["shape"], entry["data_offsets"]
            numbers = [*shape, begin, end]
        except (LookupError, TypeError, ValueError):
            raise ValueError(f"{path}: the tensor {name[:100]!r} has no known dtype, shape and data_offsets") from None
        if not all(type(number) is int and 0 <= number <= 1 << 60 for number in numbers) or len(shape) > 64:
            raise ValueError(f"{path}: the tensor {name[:100]!r} has a shape or place that is none")
        if (end - begin) * 8 != math.prod(shape) * bits:
            raise ValueError(f"{path}: the tensor {name[:100]!r} does not have the size of its shape")
        places.append((begin, end, name))
    at = 0
    for begin, end, name in sorted(places):
        if begin != at:
            raise ValueError(f"{path}: the tensor {name[:100]!r} does not follow the one before it")
        at = end
    if at != room:
        raise ValueError(
            f"{path}: has {room:,} bytes of tensors, its header says {at:,}: it is cut off, or still being written"
        )


def _check_kind(path: Path) -> None:
    """Checks that a path is not that of a pipe or a device: reading it might never end."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: is not a regular file")


def _json_file(path: Path) -> dict[str, Any]:
    _check_kind(path)
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST_JSON + 1)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(content) > _LONGEST_JSON:
        raise ValueError(f"{path}: is longer than {_LONGEST_JSON:,} bytes")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is no JSON: {str(error)[:200]}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{path}: is no JSON object")
    return document
