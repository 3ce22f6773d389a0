"""What the classes of ``mm_agents`` are constructed with: the run's options, by the names of their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from rollout_tasks.agents.osworld.agent_classes import PACKAGE, PREFIX, AgentClass
from rollout_tasks.config import Limits, RunConfig
from rollout_tasks.errors import UserError

_PLATFORMS = {"Windows": "windows"}
_PIXELS = 28 * 28
_OWN: Mapping[str, Mapping[str, Any]] = {
    # The names of models choose the API that these speak, or the host: the gateway puts the run's model in their place.
    f"{PACKAGE}.agent.PromptAgent": {"model": "gpt-4o", "action_space": "pyautogui"},
    f"{PACKAGE}.opencua.opencua_agent.OpenCUAAgent": {"model": "opencua", "history_type": "action_history"},
    f"{PACKAGE}.anthropic.main.AnthropicAgent": {"model": "claude-4-sonnet-20250514", "platform": "Ubuntu"},
    f"{PACKAGE}.aguvis_agent.AguvisAgent": {"planner_model": None, "executor_model": "aguvis-72b"},
    f"{PACKAGE}.openai_cua_agent.OpenAICUAAgent": {"provider_name": "local"},
    f"{PACKAGE}.uitars15_v2.UITarsAgent": {
        "model_type": "doubao",
        "max_tokens": 3000,
        "top_p": 0.9,
        "temperature": 0.0,
        "max_image_history_length": 5,
    },
    f"{PACKAGE}.uitars15_v1.UITARSAgent": {
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


def arguments_of(kind: AgentClass, config: RunConfig, limits: Limits) -> dict[str, Any]:
    """Returns the constructor's arguments, but for the desktop that some take.

    Raises:
        UserError: The run's options for the agent name an argument that the class does not have.
    """
    desktop = config.desktop
    known = {
        "platform": _PLATFORMS.get(desktop.os_type, "ubuntu"),
        "model": config.model.name,
        "observation_type": "screenshot",
        "max_steps": limits.max_turns,
        "client_password": desktop.client_password,
        "password": desktop.client_password,
        "screen_size": [desktop.screen_width, desktop.screen_height],
        "screen_width": desktop.screen_width,
        "screen_height": desktop.screen_height,
        "max_trajectory_length": limits.max_turns,
    }
    own = _OWN.get(f"{kind.module}.{kind.class_name}", {})
    check_options(kind, config.agent_options)
    given = {
        name: {**own[name], **value} if isinstance(value, dict) and isinstance(own.get(name), Mapping) else value
        for name, value in config.agent_options.items()
    }
    return {name: value for name, value in {**known, **own, **given}.items() if name in kind.parameters}


def check_options(kind: AgentClass, options: Mapping[str, Any]) -> None:
    """Checks that a class has the arguments that a run's options for it name.

    Raises:
        UserError: It does not.
    """
    for name in options:
        if name not in kind.parameters or name == "env":
            close = get_close_matches(name, kind.parameters, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            known = ", ".join(sorted(kind.parameters - {"env"}))
            raise UserError(f"--agent-options: {PREFIX}{kind.name} has no argument {name!r}: {hint}known: {known}")
