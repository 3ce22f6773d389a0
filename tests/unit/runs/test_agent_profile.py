"""A run's configuration has its agent's profile, and what wins over what."""

from __future__ import annotations

import re
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
from rollout_tasks.runs.folder import RunFolder
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
    registry.load.cache_clear()


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
    built_in = BUILT_IN["uitars-1.5"].model_dump(mode="json")
    assert config.profile is not None
    assert {**config.profile, "prompts": ...} == {**built_in, "prompts": ...}
    assert "{instruction}" in config.profile["prompts"]["task"], "the text itself"
    model, desktop = config.model, config.desktop
    assert (model.temperature, model.top_p, model.max_images) == (1.0, 0.9, 5)
    assert model.extra_body == {"frequency_penalty": 1, "max_tokens": 500}
    assert (desktop.action_space, desktop.observation_type, desktop.require_a11y_tree) == (
        "pyautogui",
        "screenshot",
        False,
    )
    assert (desktop.sleep_after_execution, config.limits.max_turns) == (2.0, 100)
    assert config.limits.max_seconds == 7200
    assert needed_context(config.profile) == 32_768


def test_options_win_also_with_their_own_defaults(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    sampling = "sampling: {temperature: 1, max_tokens: 7, extra: {a: 1, b: 1}}"
    fields = f"max_steps: 9, max_seconds: 8, pause: 3, history: {{images: 3}}, {sampling}"
    file.write_text(f"{WHOLE[:-1]}, {fields}}}")
    model = {"temperature": 0.5, "max_completion_tokens": 8, "max_images": 10, "extra_body": {"b": 2}}
    given = resolved(
        str(file), model=model, limits={"max_turns": 50, "max_seconds": 600}, desktop={"sleep_after_execution": 2}
    )
    taken = resolved(str(file))

    assert (given.agent, given.profile and given.profile["name"]) == ("profile", "mine")
    assert (given.model.temperature, given.model.max_images, given.model.extra_body) == (0.5, 10, {"a": 1, "b": 2})
    assert (given.limits.max_turns, given.limits.max_seconds, given.desktop.sleep_after_execution) == (50, 600, 2.0)
    assert (taken.model.temperature, taken.model.max_images) == (1.0, 3)
    assert taken.model.extra_body == {"a": 1, "b": 1, "max_tokens": 7}
    assert (taken.limits.max_turns, taken.limits.max_seconds, taken.desktop.sleep_after_execution) == (9, 8, 3.0)


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
        ({"agent": "qwen"}, "--agent: unknown agent 'qwen': did you mean qwen3.5?"),
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
        ({"desktop": {"a11y": "osworld"}}, "--a11y: the agent mine sees screenshots alone"),
        ({"desktop": {"require_terminal": True}}, "--require-terminal: the agent mine sees screenshots alone"),
        ({"model": {"images_in": "tool"}}, "--images-in: the agent mine sends screenshots where its protocol has them"),
        (
            {"agent": "openai-cua", "model": {"keep_thinking": True}},
            "--keep-thinking: the agent openai-cua always sends",
        ),
        ({"agent": "claude", "model": {"keep_thinking": True}}, "--keep-thinking: the agent claude always sends"),
        (
            {"agent": "openai-cua", "model": {"seed": 1}},
            "--model-seed: the agent openai-cua calls its model through an API",
        ),
        (
            {"agent": "claude", "model": {"seed": 1}},
            "--model-seed: the agent claude calls its model through an API that has no seed",
        ),
        ({"agent": "openai-cua", "model": {"max_images": 1}}, "--max-images: the agent openai-cua sends at least two"),
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
        UserError,
        match=f"--agent {re.escape(str(file))}: the text NOTHING of json cannot be read: NOTHING has no value there",
    ):
        with_profile(RunConfig(agent=str(file)))


def test_a_run_names_its_agent_and_its_version(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(WHOLE)
    named = []
    configs = (
        with_profile(RunConfig(agent=str(file))),
        RunConfig(agent="simulated"),
        RunConfig(env_mode="math"),
        RunConfig(env_mode="gone"),
    )
    for number, config in enumerate(configs):
        run = RunFolder(tmp_path / f"run-{number}")
        run.description.create(config, [Item("a", "?")], data_path="x", data_name="x")
        named.append(run.description.agent())

    mixed = [Item("a", "?"), Item("b", "?", env_config={"env_mode": "simulated"})]
    run = RunFolder(tmp_path / "mixed")
    run.description.create(RunConfig(env_mode="math"), mixed, data_path="x", data_name="x")
    assert run.description.environments() == ["math", "simulated"]
    assert run.description.agent() == "simulated, tool_calling"
    assert named == ["mine 1", "simulated", "tool_calling", None]


TEXTS = [
    ("{task: Do it.}", "prompts.task: must contain {instruction}: without it, the model would not know its task"),
    ("{task: '{instruction}', step: '{instruction}'}", "prompts.step: the placeholder {instruction} is not filled in"),
    (
        "{task: '{instruction}', unnamed_action: '{date}'}",
        "prompts.unnamed_action: the placeholder {date} is not filled in",
    ),
    (
        "{task: '{instruction}', no_older_steps: '{date}'}",
        "prompts.no_older_steps: the placeholder {date} is not filled in",
    ),
    (
        "{task: ['{instruction}', {module: mm_agents.opencua.prompts, name: 'general_computer_instructions[0]'}]}",
        "prompts.task: the placeholder {password} is not filled in",
    ),
]


@pytest.mark.parametrize(("prompts", "says"), TEXTS)
def test_texts_have_the_places_that_are_filled_in(tmp_path: Path, prompts: str, says: str) -> None:
    pytest.importorskip("mm_agents", reason="the texts of the built-in profiles are not installed")
    file = tmp_path / "mine.yaml"
    file.write_text(WHOLE.replace("{task: '{instruction}'}", prompts))
    with pytest.raises(UserError) as caught:
        with_profile(RunConfig(agent=str(file)))

    assert str(caught.value).startswith(f"--agent {file}: {says}")


@pytest.mark.parametrize("protocol", ["openai-cua", "claude"])
def test_computer_tools_have_no_sizes_and_no_history_in_texts(tmp_path: Path, protocol: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        f"base: {protocol}\nname: mine\nprompts: {{system: null, task: '{{instruction}} {{picture_width}}'}}"
    )
    with pytest.raises(
        UserError, match=r"prompts.task: the placeholder \{picture_width\} is not filled in with the protocol"
    ):
        with_profile(RunConfig(agent=str(file)))


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_profile_is_stored_whole(name: str) -> None:
    pytest.importorskip("mm_agents", reason="the texts of the built-in profiles are not installed")
    config = resolved(name)
    stored = config.profile

    assert (
        with_profile(config) == config == RunConfig.model_validate_json(config.model_dump_json(exclude_defaults=True))
    )
    assert stored is not None
    prompts = stored["prompts"]
    texts = [prompts[field] for field in ("system", "task", "step", "older_step")]
    assert all(text is None or isinstance(text, str) for text in texts)
    assert (name, stored["version"]) == (BUILT_IN[name].name, BUILT_IN[name].version)


def test_other_braces_in_ones_own_text_are_text(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(WHOLE.replace("'{instruction}'", "'{instruction}: write {content}, {action} and {\"a\": 1}'"))

    stored = resolved(str(file)).profile
    assert stored is not None
    assert stored["prompts"]["task"] == '{instruction}: write {content}, {action} and {"a": 1}'


def test_the_texts_of_a_stored_profile_stay_when_its_package_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "the_texts_of_mine.py"
    package.write_text("TASK = 'First: {instruction}'")
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "mine.yaml"
    file.write_text(WHOLE.replace("'{instruction}'", "{module: the_texts_of_mine, name: TASK}"))
    config = resolved(str(file))
    package.unlink()

    for same in (config, with_profile(config)):
        assert same.profile is not None
        assert same.profile["prompts"]["task"] == "First: {instruction}"


@pytest.mark.parametrize("extra", [{"max_tokens": 5}, {"max_output_tokens": 5}])
def test_the_most_tokens_are_given_once(extra: dict[str, int]) -> None:
    pytest.importorskip("mm_agents", reason="the texts of the built-in profiles are not installed")
    model = {"max_completion_tokens": 8, "extra_body": {**extra, "a": 1}}

    assert "max_tokens" not in resolved("opencua", model=model).model.extra_body
    assert resolved("openai-cua", model=model).model.extra_body.keys() == {"truncation", "reasoning", "a"}


PRINTED = [
    ("tool_calling", "claude"),
    (None, "claude"),
    ("uitars-1.5", "claude"),
    ("claude", "uitars-1.5"),
    ("openai-cua", "tool_calling"),
    ("claude", None),
]


@pytest.mark.parametrize("by", ["option", "line", "copy"])
@pytest.mark.parametrize(("before", "after"), PRINTED)
def test_a_printed_configuration_with_another_agent(
    tmp_path: Path, before: str | None, after: str | None, by: str
) -> None:
    pytest.importorskip("mm_agents", reason="the texts of the built-in profiles are not installed")
    given = {"limits": {"max_tokens": 9}, "model": {"extra_body": {"mine": 1}, "name": "m"}, "env_mode": "osworld"}
    config = resolve_config(None, {"agent": before, **given})
    file = tmp_path / "run.yaml"
    file.write_text(as_yaml(config))
    if by == "option" and after is not None:
        changed = resolve_config(file, {"agent": after})
    elif by == "line":
        file.write_text(as_yaml(config.model_copy(update={"agent": after})))
        changed = resolve_config(file, {})
    else:
        changed = with_profile(config.model_copy(update={"agent": after, "profile": config.profile}))

    assert changed == resolve_config(None, {"agent": after, **given})


def test_options_beside_a_printed_configuration_are_given(tmp_path: Path) -> None:
    pytest.importorskip("mm_agents", reason="the texts of the built-in profiles are not installed")
    file = tmp_path / "run.yaml"
    file.write_text(as_yaml(resolved("uitars-1.5")))
    options = {"agent": "claude", "limits": {"max_turns": 50}, "model": {"max_images": 5}}
    changed = resolve_config(file, options)

    assert (changed.limits.max_turns, changed.model.max_images, changed.limits.max_seconds) == (50, 5, 7200)


def test_an_api_in_a_file_is_that_of_the_agent() -> None:
    pytest.importorskip("mm_agents", reason="the texts of the built-in profiles are not installed")
    for agent, api in (("tool_calling", "chat"), (None, "chat"), ("opencua", "chat"), ("claude", "messages")):
        assert with_profile(RunConfig.model_validate({"agent": agent, "model": {"api": "responses"}})).model.api == api


def test_an_environments_own_agent_has_its_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mm_agents", reason="the texts of the built-in profiles are not installed")
    monkeypatch.setattr(registry.environment("osworld"), "default_agent", "claude")
    config = with_profile(RunConfig())

    assert config.agent is None
    assert config.profile is not None
    assert (config.profile["name"], config.model.api) == ("claude", "messages")
    assert preflight.check_names(config, [Item(id="1", question="?")]) == {"osworld"}
    there = [Item(id="1", question="?", env_config={"env_mode": "osworld"})]
    with pytest.raises(
        UserError, match="--env-mode math: its own agent has another profile than that of osworld, where"
    ):
        preflight.check_names(with_profile(RunConfig(env_mode="math")), there)


def test_what_cannot_be_stored_is_said(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(WHOLE)
    config = RunConfig(agent=str(file))
    odd = config.model_copy(update={"judge_model": "\ud800"})
    with pytest.raises(UserError, match=f"--agent {re.escape(str(file))}: cannot be stored: "):
        with_profile(odd)


def test_a_profile_needs_a_desktop(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(WHOLE)
    on_desktops, elsewhere = (resolved(str(file), env_mode=name) for name in ("osworld", "math"))
    items = [Item(id="1", question="?")]

    assert preflight.check_names(on_desktops, items) == {"osworld"}
    with pytest.raises(UserError, match="--agent: mine acts on desktops, which --env-mode math does not have"):
        preflight.check_names(elsewhere, items)
