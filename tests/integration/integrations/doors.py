"""An environment with pictures and without a desktop, as another package would add it: press the right number."""

from __future__ import annotations

import struct
import zlib
from typing import ClassVar

from benchmark.items import Item
from rollout_tasks.environments.base import Environment, EnvironmentContext, Observation, Tool, ToolCall, ToolResult


class DoorsEnvironment(Environment):
    """Scores 1 if the last number that was pressed is the item's answer. An item whose answer is ``broken`` has no doors."""

    needs_vm: ClassVar[bool] = False
    queue: ClassVar[str] = "rollout.light"
    default_agent: ClassVar[str] = "tool_calling"

    def __init__(self, context: EnvironmentContext) -> None:
        del context
        self._pressed: list[int] = []
        self._answer = ""

    def instructions(self, item: Item) -> str:
        del item
        return "Press numbers; then say so."

    def tools(self) -> list[Tool]:
        number = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
        return [Tool("press", "Presses a number.", number)]

    def reset(self, item: Item) -> Observation:
        if item.answer == "broken":
            raise RuntimeError("there are no doors")
        self._answer = item.answer
        return Observation(item.question, (self._picture(),))

    def execute(self, call: ToolCall) -> ToolResult:
        self._pressed.append(int(call.arguments["number"]))
        return ToolResult("success", f"pressed {self._pressed[-1]}", Observation("", (self._picture(),)))

    def evaluate(self) -> float | None:
        return float(bool(self._pressed) and str(self._pressed[-1]) == self._answer)

    def _picture(self) -> bytes:
        """One grey for each number of presses, and one width."""
        shade = 40 * (1 + len(self._pressed)) % 256
        width, height = 56 + 28 * len(self._pressed), 56
        rows = b"".join(b"\0" + bytes([shade]) * (3 * width) for _ in range(height))
        head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
        packed = (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in parts
        )
        return b"\x89PNG\r\n\x1a\n" + b"".join(packed)
