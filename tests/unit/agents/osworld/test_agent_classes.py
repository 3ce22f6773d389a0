"""The classes of OSWorld's own agents, as their sources describe them, and what users may say about them."""

from __future__ import annotations

import pytest

from benchmark.items import Item
from rollout_tasks import registry
from rollout_tasks.agents.osworld.agent_classes import agent_class, agent_classes
from rollout_tasks.config import parse_config
from rollout_tasks.errors import UserError
from rollout_tasks.runs.agent_profile import with_profile
from rollout_tasks.runs.preflight import check_names

pytest.importorskip("mm_agents", reason="OSWorld's own agents are not installed")
ITEM = Item(id="1", question="Open the trash.")
USABLE = {
    "AguvisAgent",
    "ManoAgent",
    "O3Agent",
    "OpenAICUAAgent",
    "OpenCUAAgent",
    "UITarsAgent",
    "uitars15_v1.UITARSAgent",
    "uitars_agent.UITARSAgent",
}


def test_those_that_can_be_used_are_listed() -> None:
    known = registry.known_agents()

    assert {f"osworld:{name}" for name in USABLE} <= set(known)
    assert "osworld:AGIAgent" not in known
    assert registry.agent("osworld:O3Agent").needs_model


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "UITARSAgent",
            "mm_agents has UITARSAgent 2 times: osworld:uitars15_v1.UITARSAgent, osworld:uitars_agent.UITARSAgent",
        ),
        ("OpenCUAgent", "mm_agents has no agent 'OpenCUAgent': did you mean osworld:OpenCUAAgent?"),
        (
            "opencuaagent",
            "mm_agents has no agent 'opencuaagent': did you mean osworld:OpenCUAAgent? those that can be used: osworld:",
        ),
        ("OwlAgent", "mm_agents's OwlAgent cannot be used here: it sends every screenshot to a storage service"),
        ("JediAgent7B", "mm_agents's JediAgent7B cannot be used here: not installed: mm_agents.utils"),
        ("AGIAgent", "mm_agents's AGIAgent cannot be used here: a service of its maker decides"),
    ],
)
def test_what_is_wrong_with_a_name(name: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        agent_class(name)
    assert str(error.value).startswith(sentence)


def test_what_modules_of_the_package_lack_is_found_through_others_of_it() -> None:
    assert agent_classes()["Qwen25VLAgent"].missing == ("mm_agents.utils",)


def test_a_run_gets_the_actions_and_the_observation_of_such_an_agent() -> None:
    config = with_profile(parse_config({"agent": "osworld:O3Agent"}))

    desktop = config.desktop
    assert (desktop.action_space, desktop.observation_type, desktop.require_a11y_tree) == (
        "pyautogui",
        "screenshot",
        False,
    )
    assert with_profile(config) == config


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"desktop": {"action_space": "computer_13"}},
            "--action-space computer_13: --agent osworld:O3Agent has pyautogui",
        ),
        ({"system_prompt": "Be quick."}, "--system-prompt-file: --agent osworld:O3Agent makes its prompts itself"),
        ({"model": {"max_images": 3}}, "--max-images: --agent osworld:O3Agent makes its prompts itself"),
    ],
)
def test_options_that_it_would_ignore_are_refused(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        with_profile(parse_config({"agent": "osworld:O3Agent", **values}))
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"agent_options": {"max_step": 3}},
            "osworld:O3Agent has no argument 'max_step' to give: did you mean max_steps?",
        ),
        ({"agent_options": {"action_space": "computer_13"}}, "osworld:O3Agent has no argument 'action_space' to give"),
        (
            {"agent": "tool_calling", "agent_options": {"a": 1}},
            "only OSWorld's own agents (--agent osworld:CLASS) take options",
        ),
        ({"env_mode": "math"}, "--agent: osworld:O3Agent acts on desktops, which --env-mode math does not have"),
    ],
)
def test_what_the_submission_says_of_wrong_options(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        check_names(parse_config({"agent": "osworld:O3Agent", **values}), [ITEM])
    assert sentence in str(error.value)
