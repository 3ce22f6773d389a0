"""The pure parts of OSWorld's official agents, as installed with desktop-env: from a reply to the scripts they would run.

Their classes are made without their constructors, which want keys and connections. What some of them import for their
connections and is not installed, is replaced by empty modules while they are imported.
"""

from __future__ import annotations

import importlib
import logging
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from rollout_tasks.agents.profiles.coordinates import QWEN_25

WIDTH, HEIGHT = 1920, 1080
Scripts = list[str]
_ENDS = {"finished": "DONE", "wait": "WAIT", "error_env": "FAIL", "call_user": "CALL_USER"}


class _Empty(types.ModuleType):
    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {})


@contextmanager
def _without_connections() -> Iterator[None]:
    """Lets the agents be imported without the packages that only their connections need."""
    empty = {}
    for name in (
        "dashscope",
        "anthropic",
        "anthropic.types",
        "anthropic.types.beta",
        "mm_agents.utils",
        "mm_agents.utils.qwen_vl_utils",
    ):
        try:
            importlib.import_module(name)
        except ImportError:
            empty[name] = _Empty(name)
    sys.modules.update(empty)
    try:
        yield
    finally:
        for name in empty:
            del sys.modules[name]


def module(name: str) -> Any:
    """Returns a module of the official agents; skips the test if it cannot be imported."""
    pytest.importorskip("mm_agents", reason="the official agents are not installed")
    with _without_connections():
        try:
            found = importlib.import_module(f"mm_agents.{name}")
        except (ImportError, KeyError) as error:
            pytest.skip(f"mm_agents.{name} cannot be imported: {error}")
    if getattr(found, "logger", "none") is None:
        found.logger = logging.getLogger(__name__)
    return found


def _instance(name: str, class_name: str, **attributes: Any) -> Any:
    kind = getattr(module(name), class_name)
    made = object.__new__(kind)
    made.__dict__.update(attributes)
    return made


def _one_by_one(
    read: Callable[[str], list[dict[str, Any]]], written: Callable[[dict[str, Any]], str]
) -> Callable[[str], Scripts]:
    """As the first two UI-TARS agents do: an action that ends or waits stands for the whole reply."""

    def scripts(reply: str) -> Scripts:
        found = read(reply)
        ends = [_ENDS[action["action_type"]] for action in found if action["action_type"] in _ENDS]
        return ends[:1] or [written(action) for action in found]

    return scripts


def ui_tars_1() -> Callable[[str], Scripts]:
    """UI-TARS 1.0, on a grid of 1000."""
    agent = module("uitars_agent")
    return _one_by_one(
        lambda reply: agent.parse_action_qwen2vl(reply, 1000, HEIGHT, WIDTH),
        lambda action: agent.parsing_response_to_pyautogui_code(action, HEIGHT, WIDTH, True),
    )


def ui_tars_15() -> Callable[[str], Scripts]:
    """UI-TARS 1.5, in the resized picture."""
    agent = module("uitars15_v1")
    return _one_by_one(
        lambda reply: agent.parse_action_to_structure_output(reply, 1000, HEIGHT, WIDTH, "qwen25vl"),
        lambda action: agent.parsing_response_to_pyautogui_code(action, HEIGHT, WIDTH, True),
    )


def ui_tars_15_points() -> Callable[[str], Scripts]:
    """UI-TARS 1.5 with ``<point>``, on a grid of 1000; all actions become one script."""
    agent = module("uitars15_v2")

    def scripts(reply: str) -> Scripts:
        found = agent.parse_action_to_structure_output(reply, 1000, HEIGHT, WIDTH, "doubao")
        code = agent.parsing_response_to_pyautogui_code(found, HEIGHT, WIDTH, platform="ubuntu")
        ends = [_ENDS[action["action_type"]] for action in found if action["action_type"] in _ENDS]
        return ends[:1] or [code]

    return scripts


def qwen_3() -> Callable[[str], Scripts]:
    """Qwen3-VL, on its grid."""
    agent = _instance("qwen3vl_agent", "Qwen3VLAgent", coordinate_type="relative")
    return lambda reply: agent.parse_response(reply, WIDTH, HEIGHT, 1920, 1088)[1]


def qwen_25() -> Callable[[str], Scripts]:
    """Qwen2.5-VL, in the resized picture."""
    agent = _instance("qwen25vl_agent", "Qwen25VLAgent")
    width, height = QWEN_25.size(WIDTH, HEIGHT)
    return lambda reply: agent.parse_response(reply, WIDTH, HEIGHT, width, height)[1]


def open_cua(coordinates: str) -> Callable[[str], Scripts]:
    """OpenCUA; `coordinates` is ``relative``, ``qwen25`` or ``absolute``."""
    agent = module("opencua.opencua_agent")
    return lambda reply: agent.parse_response_to_cot_and_action(reply, (WIDTH, HEIGHT), coordinates)[1]


def claude() -> Callable[[Mapping[str, Any]], Scripts]:
    """Claude, in the picture of 1280x720."""
    agent = _instance("anthropic.main", "AnthropicAgent", resize_factor=(WIDTH / 1280, HEIGHT / 720))

    def scripts(message: Mapping[str, Any]) -> Scripts:
        uses = [block for block in message["content"] if block["type"] == "tool_use"]
        return [agent.parse_actions_from_tool_call(use) for use in uses] or ["DONE"]

    return scripts


def responses() -> Callable[[Mapping[str, Any]], Scripts]:
    """The Responses API, in pixels of the screen; one action a call."""
    agent = _instance("openai_cua_agent", "OpenAICUAAgent")

    def scripts(response: Mapping[str, Any]) -> Scripts:
        actions = [item["action"] for item in response["output"] if item["type"] == "computer_call"]
        found = [agent._convert_cua_action_to_pyautogui_action(action["type"], dict(action)) for action in actions]
        return [script for script in found if script is not None]

    return scripts
