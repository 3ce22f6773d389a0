"""A run's configuration has its agent's profile, and what wins over what."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks import registry
from rollout_tasks.agents.base import Agent
from rollout_tasks.agents.profiles.built_in import BUILT_IN
from rollout_tasks.cli.run_file import as_yaml, resolve_config
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.runs import preflight
from rollout_tasks.runs.agent_profile import needed_context, with_profile
from vm_pool.contracts import check_class

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
OFFERED = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"][registry.AGENTS]
WHOLE = "{name: mine, version: 1, protocol: ui_tars, prompts: {task: '{instruction}'}, places: {span: picture}}"


@pytest.fixture(autouse=True)
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agents of this working tree, which may be newer than those that are installed."""
    points = {name: EntryPoint(name, value, registry.AGENTS) for name, value in OFFERED.items()}
    installed = registry._offered
    monkeypatch.setattr(registry, "_offered", lambda group: points if group == registry.AGENTS else installed(group))
    registry._load.cache_clear()


def resolved(agent: str, **options: Any) -> RunConfig:
    return with_profile(RunConfig.model_validate({"agent": agent, **options}))


def test_every_profile_is_offered_under_its_name() -> None:
    classes = {name: registry.agent(name) for name in OFFERED}
    profiles = {name: getattr(found, "profile", None) for name, found in classes.items()}

    assert {name: profile for name, profile in profiles.items() if profile} == BUILT_IN
    for found in classes.values():
        check_class(found, Agent)


def test_a_profile_fills_in_what_the_run_leaves_open() -> None:
    pytest.importorskip("mm_agents", reason="the texts of the built-in profiles are not installed")
    config = resolved("uitars-1.5")

    assert config.agent == "uitars-1.5"
    assert config.profile == BUILT_IN["uitars-1.5"].model_dump(mode="json")
    model, desktop = config.model, config.desktop
    assert (model.temperature, model.top_p, model.max_images) == (1.0, 0.9, 5)
    assert model.extra_body == {"frequency_penalty": 1, "max_tokens": 500}
    assert (desktop.action_space, desktop.observation_type, desktop.require_a11y_tree) == (
        "pyautogui",
        "screenshot",
        False,
    )
    assert (desktop.sleep_after_execution, config.limits.max_turns) == (2.0, 100)
    assert needed_context(config) == 32_768


def test_options_win_also_with_their_own_defaults(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    fields = (
        "max_steps: 9, pause: 3, sampling: {temperature: 1, max_tokens: 7, extra: {a: 1, b: 1}}, history: {images: 3}"
    )
    file.write_text(f"{WHOLE[:-1]}, {fields}}}")
    model = {"temperature": 0.5, "max_completion_tokens": 8, "max_images": 10, "extra_body": {"b": 2}}
    given = resolved(str(file), model=model, limits={"max_turns": 50}, desktop={"sleep_after_execution": 2})
    taken = resolved(str(file))

    assert (given.agent, given.profile and given.profile["name"]) == ("profile", "mine")
    assert (given.model.temperature, given.model.max_images, given.model.extra_body) == (0.5, 10, {"a": 1, "b": 2})
    assert (given.limits.max_turns, given.desktop.sleep_after_execution) == (50, 2.0)
    assert (taken.model.temperature, taken.model.max_images) == (1.0, 3)
    assert taken.model.extra_body == {"a": 1, "b": 1, "max_tokens": 7}
    assert (taken.limits.max_turns, taken.desktop.sleep_after_execution) == (9, 3.0)


def test_a_stored_configuration_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(WHOLE)
    config = resolve_config(None, {"agent": str(file), "limits": {"max_turns": 3}})
    stored = tmp_path / "run.yaml"
    stored.write_text(as_yaml(config))
    file.unlink()

    assert resolve_config(stored, {}) == config == with_profile(config)
    assert RunConfig.model_validate_json(config.model_dump_json()) == config


def test_agents_without_a_profile_are_left_alone() -> None:
    for agent in (None, "tool_calling"):
        config = RunConfig(agent=agent)
        assert with_profile(config) is config


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"agent": "qwen"}, "--agent: unknown agent 'qwen': did you mean qwen3-vl?"),
        ({"agent": "profile"}, "--agent profile: name a profile's file"),
        ({"agent": "nowhere.yaml"}, "nowhere.yaml: cannot be read"),
        ({"agent": "profile", "profile": {"name": "x"}}, "profile: version: is missing"),
        ({"system_prompt": "Be brief."}, "--system-prompt-file: the texts of the agent mine are in its profile"),
        ({"model": {"max_images": 0}}, "--max-images: the agent mine needs at least the current screenshot"),
        (
            {"desktop": {"action_space": "computer_13"}},
            "--action-space: the agent mine needs pyautogui, not computer_13",
        ),
        ({"desktop": {"observation_type": "som"}}, "--observation-type: the agent mine needs screenshot, not som"),
    ],
)
def test_what_cannot_be_is_said_at_submission(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(WHOLE)
    with pytest.raises(UserError) as caught:
        with_profile(RunConfig.model_validate({"agent": str(file), **options}))

    assert says in str(caught.value)


def test_a_text_that_cannot_be_read_is_said_at_submission(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(WHOLE.replace("'{instruction}'", "{module: json, name: NOTHING}"))
    with pytest.raises(
        UserError, match="--agent mine: the text NOTHING of json cannot be read: NOTHING has no value there"
    ):
        with_profile(RunConfig(agent=str(file)))


def test_a_profile_needs_a_desktop(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(WHOLE)
    on_desktops, elsewhere = (resolved(str(file), env_mode=name) for name in ("osworld", "math"))
    items = [Item(id="1", question="?")]

    assert preflight.check_names(on_desktops, items) == {"osworld"}
    with pytest.raises(UserError, match="--agent: mine acts on desktops, which --env-mode math does not have"):
        preflight.check_names(elsewhere, items)
