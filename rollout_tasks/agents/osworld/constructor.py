"""What the classes of ``mm_agents`` are constructed with: the run's options, by the names of their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from rollout_tasks.agents.osworld.agent_classes import PACKAGE, PREFIX, AgentClass
from rollout_tasks.config import DesktopConfig, Limits, RunConfig
from rollout_tasks.errors import UserError

_PIXELS = 28 * 28
_CLASS_ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    # The names of models choose the API that these speak, or the host: the gateway puts the run's model in their place.
    "agent.PromptAgent": {"model": "gpt-4o", "action_space": "pyautogui"},
    "anthropic.main.AnthropicAgent": {"model": "claude-3-5-sonnet-20241022"},
    "aguvis_agent.AguvisAgent": {"planner_model": None, "executor_model": "aguvis-72b"},
    "opencua.opencua_agent.OpenCUAAgent": {"model": "opencua", "history_type": "action_history"},
    "openai_cua_agent.OpenAICUAAgent": {"provider_name": "local"},
    "uitars15_v2.UITarsAgent": {
        "model_type": "doubao",
        "max_tokens": 3000,
        "top_p": 0.9,
        "temperature": 0.0,
        "max_image_history_length": 5,
    },
    "uitars15_v1.UITARSAgent": {
        "runtime_conf": {
            "infer_mode": "qwen25vl_normal",
            "prompt_style": "qwen25vl_normal",
            "input_swap": True,
            "language": "English",
            "history_n": 5,
            "max_pixels": 16384 * _PIXELS,
            "min_pixels": 100 * _PIXELS,
            "callusr_tolerance": 3,
            "temperature": 1.0,
            "top_k": -1,
            "top_p": 0.9,
            "max_tokens": 500,
        }
    },
}
"""Of classes with parameters that the run's options do not say."""
_LAST_TURN = frozenset(
    {"mano_agent.ManoAgent", "uitars_agent.UITARSAgent", "uitars15_v1.UITARSAgent", "uitars15_v2.UITarsAgent"}
)
"""Classes whose ``max_trajectory_length`` is the number of their last turn; elsewhere it is a number of screenshots."""
_ONE_SCREEN: Mapping[str, tuple[int, int]] = {"uitars15_v2.UITarsAgent": (1920, 1080)}
"""Classes that have the size of the screen in their code."""
_PLATFORMS: Mapping[str, Mapping[str, str]] = {
    "anthropic.main.AnthropicAgent": {"ubuntu": "Ubuntu", "windows": "Windows"}
}
"""What classes call the platforms that others call ubuntu and windows."""
_SET_BY_RUNS = frozenset(
    {"action_space", "api_key", "client_password", "env", "observation_type", "password", "platform", "provider"}
)
"""Parameters that options for the agent cannot give: the run's own options do, or they are no values."""


def arguments_of(kind: AgentClass, config: RunConfig, limits: Limits) -> dict[str, Any]:
    """Returns the constructor's arguments, but for the desktop that some take.

    Raises:
        UserError: The run's options for the agent name an argument that the class does not have, or its screen has a size that the
            class does not know.
    """
    check_options(kind, config)
    name = _name(kind)
    class_arguments = dict(_CLASS_ARGUMENTS.get(name, {}))
    if name == "uitars_agent.UITARSAgent":
        class_arguments["runtime_conf"] = {
            "screen_width": config.desktop.screen_width,
            "screen_height": config.desktop.screen_height,
        }
    if name in _LAST_TURN:
        class_arguments["max_trajectory_length"] = limits.max_turns
    given = {
        option: {**class_arguments[option], **value}
        if isinstance(value, Mapping) and isinstance(class_arguments.get(option), Mapping)
        else value
        for option, value in config.agent_options.items()
    }
    arguments = {"model": config.model.name, **_of_desktop(kind, config.desktop), "max_steps": limits.max_turns}
    return {
        option: value
        for option, value in {**arguments, **class_arguments, **given}.items()
        if option in kind.parameters
    }


def _of_desktop(kind: AgentClass, desktop: DesktopConfig) -> dict[str, Any]:
    platform = "windows" if desktop.os_type == "Windows" else "ubuntu"
    return {
        "platform": _PLATFORMS.get(_name(kind), {}).get(platform, platform),
        "observation_type": "screenshot",
        "client_password": desktop.client_password,
        "password": desktop.client_password,
        "screen_size": [desktop.screen_width, desktop.screen_height],
        "screen_width": desktop.screen_width,
        "screen_height": desktop.screen_height,
    }


def check_options(kind: AgentClass, config: RunConfig) -> None:
    """Checks a run's options for a class.

    Raises:
        UserError: They name an argument that the class does not have, or the screen has a size that the class does not know.
    """
    known = kind.parameters - _SET_BY_RUNS
    for name in config.agent_options:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            listed = ", ".join(sorted(known))
            raise UserError(
                f"--agent-options: {PREFIX}{kind.name} has no argument {name!r} to give: {hint}known: {listed}"
            )
    size = config.desktop.screen_width, config.desktop.screen_height
    wanted = _ONE_SCREEN.get(_name(kind), size)
    if size != wanted:
        raise UserError(f"--agent {PREFIX}{kind.name} only knows a screen of {wanted[0]}x{wanted[1]} pixels")


def _name(kind: AgentClass) -> str:
    return f"{kind.module.removeprefix(f'{PACKAGE}.')}.{kind.class_name}"
