"""Further models of a run: how they are given, what is wrong with them, and which keys they get."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.errors import UserError
from rollout_tasks.models.role_keys import key_of_role
from rollout_tasks.runs.agent_profile import with_profile
from rollout_tasks.runs.model_check import check_cost, check_scripts
from rollout_tasks.settings import settings

URL = "http://127.0.0.1:8001/v1"
ROLE = f"grounder=small,base-url={URL},profile=qwen3-vl"
AGENT = {"agent": "planner-grounder"}


def refused(values: dict[str, Any]) -> str:
    with pytest.raises(UserError) as error:
        with_profile(parse_config(values))
    return str(error.value)


def config(*roles: Any, **values: Any) -> RunConfig:
    return with_profile(parse_config({**AGENT, "model_roles": roles or [ROLE], **values}))


def test_a_model_is_given_as_text_or_as_a_mapping() -> None:
    text = parse_config({"model_roles": [f"{ROLE},temperature=0.5,max-completion-tokens=99"]})
    model = {"name": "small", "base_url": URL, "temperature": 0.5, "max_completion_tokens": 99}
    assert text == parse_config({"model_roles": [{"role": "grounder", "model": model, "profile": "qwen3-vl"}]})


WRONG: list[tuple[Any, str]] = [
    (5, "--model-role: must be a list, got 5"),
    ([5], "--model-role: number 1: must be a mapping of options, got 5"),
    (["sk-1"], "--model-role: must look like grounder=MODEL,base-url=URL,profile=NAME"),
    (["=m"], "--model-role: must look like grounder=MODEL,"),
    (["grounder="], "--model-role: must look like grounder=MODEL,"),
    (["a b=m"], "--model-role: a b: role: may have letters, digits,"),
    (["g=m,base-url=x"], "--model-role: g: base-url: must look like http://host:port/v1"),
    (["g=m,base-url=http://u:p@h/v1"], "--model-role: g: base-url: must not carry a user, password or query"),
    (["g=m,base-url"], "--model-role: g: base-url has no value: it must look like base-url=VALUE"),
    (["g=m,url=x"], "--model-role: g: 'url' is not one of profile, base-url, model-pool, temperature,"),
    (["g=m,extra-body={}"], "--model-role: g: 'extra-body' is not one of profile, base-url,"),
    (["g=m,api-key=sk-1"], "--model-role: g: 'api-key' is not one of profile, base-url,"),
    (["g=m,max-images=5"], "--model-role: g: 'max-images' is not one of profile, base-url,"),
    (["g=m,keep-thinking=true"], "--model-role: g: 'keep-thinking' is not one of profile, base-url,"),
    (["g=m,model-timeout=0"], "--model-role: g: model-timeout: must be more than 0, got 0"),
    ([{"role": "g", "model": {}}, {"model": {}}], "--model-role: number 2: role: is missing"),
    (
        [{"role": "g", "model": {"images_in": "tool"}}],
        "--model-role: 'g': images_in: a further model sees one screenshot",
    ),
    ([{"role": "g", "model": {"scripted": True}}], "--model-role: 'g': scripted: a further model is never scripted"),
    (["g=m,temperature=hot"], "--model-role: g: temperature: must be a number, got 'hot'"),
    (["g=m,temperature=1,temperature=2"], "--model-role: g: temperature is given twice"),
    (["g=m,profile=a,profile=b"], "--model-role: g: profile is given twice"),
    (["g=m", "g=n"], "--model-role: two models are named g"),
    ([{"role": "g"}], "--model-role: 'g': model: is missing"),
    ([{"role": "g", "model": {"nam": "m"}}], "--model-role: 'g': model.nam: is not an option"),
    ([{"role": "g", "model": {}, "api_key": "k"}], "--model-role: 'g': api_key: is not an option"),
]


@pytest.mark.parametrize(("roles", "sentence"), WRONG, ids=lambda value: ascii(value)[:40])
def test_what_is_wrong_is_said_in_a_sentence(roles: Any, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        parse_config({"model_roles": roles})
    said = str(error.value)
    assert said.startswith(sentence)
    assert "\n" not in said
    assert "sk-1" not in said


NOT_FITTING: list[tuple[dict[str, Any], str]] = [
    (AGENT, "--agent planner-grounder: name its grounder, as in --model-role grounder=MODEL,"),
    ({"model_roles": [ROLE]}, "--model-role grounder: the environment's own agent asks no other model than --model"),
    ({"agent": "qwen3-vl", "model_roles": [ROLE]}, "--model-role grounder: --agent qwen3-vl asks no other model than"),
    (
        {**AGENT, "model_roles": ["judge=m"]},
        "--model-role judge: --agent planner-grounder asks, besides --model: grounder",
    ),
    ({**AGENT, "model_roles": ["grounder=m"]}, "--model-role grounder: say how it is asked, as in profile=uitars-1.5"),
    (
        {**AGENT, "model_roles": ["grounder=m,profile=tool_calling"]},
        "--model-role grounder: profile: the agent tool_calling",
    ),
    (
        {**AGENT, "model_roles": ["grounder=m,profile=qwen3"]},
        "--model-role grounder: unknown agent 'qwen3': did you mean",
    ),
    ({**AGENT, "model_roles": ["grounder=m,profile=/no.yaml"]}, "--model-role grounder: /no.yaml: "),
    (
        {**AGENT, "model_roles": ["grounder=m,profile=openai-cua,model-seed=3"]},
        "--model-role grounder: model-seed: its",
    ),
    (
        {**AGENT, "model_roles": [{"role": "grounder", "model": {}, "profile": ""}]},
        "--model-role grounder: say how it is",
    ),
    (
        {**AGENT, "model_roles": [ROLE], "desktop": {"action_space": "pyautogui"}},
        "--action-space pyautogui: the planner",
    ),
    ({**AGENT, "model_roles": [ROLE], "desktop": {"observation_type": "som"}}, "--observation-type som: the grounder"),
    (
        {**AGENT, "model_roles": [ROLE], "desktop": {"observation_type": "a11y_tree"}},
        "--observation-type a11y_tree: the",
    ),
]


@pytest.mark.parametrize(("values", "sentence"), NOT_FITTING, ids=lambda value: ascii(value)[:50])
def test_models_and_agents_that_do_not_fit_are_refused(values: dict[str, Any], sentence: str) -> None:
    assert refused(values).startswith(sentence)


def test_a_model_has_what_its_profile_says_and_it_leaves_open() -> None:
    [role] = config(
        f"{ROLE},temperature=0.25", model={"timeout": 7, "max_retries": 2, "extra_body": {"a": 1}}
    ).model_roles
    assert role.model.temperature == 0.25
    assert (role.model.timeout, role.model.max_retries, role.model.api) == (7, 2, "chat")
    assert "a" not in role.model.extra_body
    assert isinstance(role.profile, dict)
    assert role.profile["name"] == "qwen3-vl"


def test_a_stored_configuration_stays_as_it_is() -> None:
    first = config()
    stored = parse_config(json.loads(json.dumps(first.model_dump(mode="json"))))
    assert stored == with_profile(stored) == first


def test_a_printed_configuration_may_be_given_another_agent() -> None:
    printed = json.loads(json.dumps(config().model_dump(mode="json")))
    for agent in ("tool_calling", "qwen3-vl"):
        assert with_profile(parse_config({**printed, "agent": agent})).model_roles == ()


def test_a_model_without_an_endpoint_is_where_the_runs_own_is() -> None:
    own = config("grounder=small,profile=qwen3-vl", model={"base_url": URL})
    assert own.models[1].base_url == URL
    moved = own.model_copy(update={"model": own.model.model_copy(update={"base_url": None, "pool": "p"})})
    assert (moved.models[1].base_url, moved.models[1].pool) == (None, "p")


def test_no_scripted_model_and_no_price_are_guessed() -> None:
    with pytest.raises(
        UserError, match=r"--agent planner-grounder: the scripted model plays no run with several models"
    ):
        check_scripts(config(), [])
    priced = {"name": "m", "prompt_price": 1, "completion_price": 1}
    with pytest.raises(UserError, match="--max-cost: what 'small' costs is not known: add ,prompt-price="):
        check_cost(config(model=priced, max_cost=1), needs_model=True, spent=0)
    with pytest.raises(UserError, match="--model-role grounder: prompt-price, completion-price: only one"):
        check_cost(config(f"{ROLE},prompt-price=1"), needs_model=True, spent=0)
    check_cost(config(f"{ROLE},prompt-price=0,completion-price=0", model=priced, max_cost=1), needs_model=True, spent=0)


def test_no_other_endpoint_gets_the_runs_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    [elsewhere] = config().model_roles
    own = {"base_url": "http://127.0.0.1:9/v1"}
    for keys, key in (("", ""), ("grounder:sk-g", "sk-g"), ("judge:sk-j", ""), ("judge:sk-j grounder:a:b", "a:b")):
        monkeypatch.setenv("ROLLOUT_ROLE_KEYS", keys)
        settings.cache_clear()
        assert key_of_role(elsewhere, config(model=own)) == key
    monkeypatch.setenv("ROLLOUT_ROLE_KEYS", "")
    settings.cache_clear()
    assert key_of_role(elsewhere, config(model={"base_url": URL})) is None
    inheriting = config("grounder=small,profile=qwen3-vl", model=own)
    assert key_of_role(inheriting.model_roles[0], inheriting) is None


@pytest.mark.parametrize("keys", ["sk-1", ":sk-1", "sk-1:", "a:sk-1 a:sk-2", "a:sk-1,b:sk-1", "grounder:sk-1\x7f"])
def test_a_wrong_list_of_keys_is_refused_without_quoting_one(keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUT_ROLE_KEYS", keys)
    settings.cache_clear()
    [role] = config().model_roles
    with pytest.raises(UserError, match=r"^ROLLOUT_ROLE_KEYS: ") as error:
        key_of_role(role, config())
    assert "sk-" not in str(error.value)
    monkeypatch.undo()
    settings.cache_clear()
