"""Shared by the action spaces: where a call points to, what it becomes, and the tool that ends an episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rollout_tasks.environments.base import Tool, ToolCall
from rollout_tasks.environments.osworld.guest_python import Action

MAX_PAUSE_SECONDS = 120.0
PAUSE: Mapping[str, Any] = {
    "type": "number",
    "minimum": 0,
    "maximum": MAX_PAUSE_SECONDS,
    "description": "Seconds to wait before looking at the screen again; leave it out for the usual wait.",
}
MARK: Mapping[str, Any] = {
    "type": "integer",
    "minimum": 1,
    "description": "Number of a box on the screenshot, in place of coordinates.",
}


class CallRefused(ValueError):
    """A call that cannot be carried out here; the message is for the model."""


@dataclass(frozen=True, slots=True)
class View:
    """What the agent sees: the screen's size, and where each mark is (None if marks are not drawn); and the guest's system."""

    screen: tuple[int, int]
    marks: Mapping[int, tuple[int, int]] | None = None
    system: str = "Ubuntu"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a call becomes."""

    action: Action | None
    """None: only looks at the screen."""
    said: str
    """The action in words, for the reply."""
    pause: float | None = None
    """Seconds before the next look; None for the run's default."""
    ends: Literal["done", "fail"] | None = None
    answers: bool = False
    """Whether what the command prints is the answer."""


def tool(name: str, description: str, properties: Mapping[str, Any], required: list[str] | None = None) -> Tool:
    """Returns a tool that takes a pause besides its own parameters."""
    schema = {"type": "object", "properties": {**properties, "pause": PAUSE}, "additionalProperties": False}
    return Tool(name, description, {**schema, "required": required} if required else schema)


def pointing(view: View, what: str) -> dict[str, Any]:
    """Returns the parameters for a place, including the mark if marks are drawn."""
    place: dict[str, Any] = {
        "x": {"type": "number", "description": f"{what}: pixels from the left."},
        "y": {"type": "number", "description": f"{what}: pixels from the top."},
    }
    return place if view.marks is None else {**place, "mark": MARK}


def place_of(call: ToolCall, view: View, *, required: bool) -> dict[str, float]:
    """Returns ``x`` and ``y`` of a call; empty if it gives no place and needs none.

    Raises:
        CallRefused: Only one coordinate, a missing place, a place outside the screen, or an unknown mark.
    """
    arguments = call.arguments
    if arguments.get("mark") is not None:
        x, y = at_mark(arguments["mark"], view)
        return {"x": x, "y": y}
    given = [name for name in ("x", "y") if arguments.get(name) is not None]
    if len(given) == 1:
        raise CallRefused(f"x and y belong together, only {given[0]} was given")
    if given:
        return dict(zip(("x", "y"), on_screen(arguments["x"], arguments["y"], view), strict=True))
    if required:
        raise CallRefused("x and y are needed" if view.marks is None else "x and y are needed, or mark")
    return {}


def on_screen(x: float, y: float, view: View) -> tuple[float, float]:
    """Returns the place unchanged.

    Raises:
        CallRefused: It is outside the screen.
    """
    width, height = view.screen
    if not (0 <= x < width and 0 <= y < height):
        raise CallRefused(f"({x:g}, {y:g}) is outside the screen of {width}x{height} pixels")
    return x, y


def at_mark(mark: int, view: View) -> tuple[int, int]:
    """Returns where a mark is.

    Raises:
        CallRefused: No mark has that number.
    """
    if view.marks is None or mark not in view.marks:
        known = f"1 to {len(view.marks)}" if view.marks else "none"
        raise CallRefused(f"there is no mark {mark} on the screen; marks: {known}")
    return view.marks[mark]


CONTROL = tool(
    "desktop_control",
    "Waits, or ends the task: done when it is solved, fail when it cannot be solved on this computer at all.",
    {"action": {"type": "string", "enum": ["wait", "done", "fail"]}},
    ["action"],
)


def control(call: ToolCall) -> Plan:
    """Returns what a call of `CONTROL` becomes."""
    action = str(call.arguments["action"])
    pause = call.arguments.get("pause")
    if action == "wait":
        return Plan("WAIT", "WAIT", pause)
    return Plan(action.upper(), action.upper(), pause, "done" if action == "done" else "fail")
