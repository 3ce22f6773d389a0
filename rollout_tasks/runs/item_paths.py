"""The folders of items below a run's: any id as safe path components, and back."""

from __future__ import annotations

import re

_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
_RUN_FILES = frozenset(
    {"run.json", "items.jsonl", "evaluation.json", "events.jsonl", "report.md", "judged.jsonl", "logs", "training"}
)
"""The run's own files beside them."""
_PART_BYTES = 240
"""Below every common file system's limit of 255 bytes for one name."""


def encode_id(item_id: str) -> str:
    """Encodes an item's id as one or more safe path components, reversibly.

    Bytes other than letters, digits, ``-``, ``_`` and ``.`` become ``=XX``, and so does a ``.`` that would begin a component; a
    result longer than a file name may be is continued in a folder below, marked by a trailing ``=``.
    """
    encoded = "".join(chr(byte) if byte in _SAFE else f"={byte:02X}" for byte in item_id.encode())
    if encoded.startswith(".") or encoded in _RUN_FILES:
        encoded = f"={ord(encoded[0]):02X}" + encoded[1:]
    parts = [encoded[at : at + _PART_BYTES] for at in range(0, len(encoded), _PART_BYTES)]
    return "=/".join(f"={ord('.'):02X}{part[1:]}" if part.startswith(".") else part for part in parts)


def decode_id(path: str) -> str:
    """Decodes the result of `encode_id`."""
    encoded = path.replace("=/", "")
    raw = re.sub(rb"=([0-9A-F]{2})", lambda match: bytes([int(match[1], 16)]), encoded.encode())
    return raw.decode()
