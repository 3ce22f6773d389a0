"""A desktop for tests: it shows pictures in order, one after each action, and keeps what it was asked to do."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache

from PIL import Image, ImageDraw

from benchmark.items import Item
from rollout_tasks.environments.base import Observation, Tool, ToolCall, ToolResult, World
from rollout_tasks.environments.osworld.action_spaces.base import CONTROL
from rollout_tasks.environments.osworld.action_spaces.pyautogui import SCRIPT


@cache
def screenshot(number: int, size: tuple[int, int] = (1920, 1080)) -> bytes:
    """Returns a PNG, unlike that of any other number."""
    picture = Image.new("RGB", size, (30, 60 + number, 120))
    drawing = ImageDraw.Draw(picture)
    for place in range(number + 1):
        drawing.rectangle((40 * place, 30 * place, 40 * place + 333, 30 * place + 77), fill=(200, 9 * number, 50))
        drawing.line((0, 91 * place, size[0], 37 * place), fill=(250, 250, 3 * number), width=3)
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


class DrawnDesktop(World):
    """Shows a new picture after each action, or the picture of a number that a function gives."""

    def __init__(self, size: tuple[int, int] = (1920, 1080), number: Callable[[], int] | None = None) -> None:
        self.says: dict[str, str] = {}
        """What a script prints, by a part of it."""
        self.refuses: dict[str, str] = {}
        """Why a script fails, by a part of it."""
        self.calls: list[ToolCall] = []
        self._size = size
        self._number = number or (lambda: len(self.calls))

    def instructions(self, item: Item) -> str:  # noqa: ARG002
        return ""

    def tools(self) -> list[Tool]:
        return [SCRIPT, CONTROL]

    def reset(self, item: Item) -> Observation:  # noqa: ARG002
        return self.look()

    def execute(self, call: ToolCall) -> ToolResult:
        self.calls.append(call)
        ending = call.arguments.get("action")
        ends = ending if ending in ("done", "fail") else None
        script = str(call.arguments.get("script", ""))
        if problem := next((text for part, text in self.refuses.items() if part in script), ""):
            return ToolResult("failed", f"Execution failed for {call.name}: {problem}", self.look())
        printed = next((text for part, text in self.says.items() if part in script), "")
        return ToolResult("success", f"Action executed successfully: script\n{printed}", self.look(), ends_episode=ends)

    def look(self) -> Observation:
        return Observation(images=(screenshot(self._number(), self._size),))

    def scripts(self) -> list[list[str]]:
        """What was done in each turn, each action as a script or as OSWorld's word for it."""
        turns: dict[str, list[str]] = {}
        for call in self.calls:
            word = str(call.arguments.get("action", "")).upper()
            turns.setdefault(call.id.rpartition("-")[0], []).append(word or str(call.arguments["script"]))
        return list(turns.values())
