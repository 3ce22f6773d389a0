"""What is checked before a run is enqueued: names, items, VMs and the folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import redis

from benchmark.items import Item
from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.environments import py
from rollout_tasks.errors import UserError
from rollout_tasks.runs import preflight
from vm_pool.pool import VMPool
from vm_pool.states import Endpoint, VMState


def config(**options: Any) -> RunConfig:
    return RunConfig.model_validate({"env_mode": "simulated", **options})


def item(name: str = "one", **env_config: Any) -> Item:
    return Item(name, "?", env_config=env_config)


@pytest.mark.parametrize(
    ("options", "env_config", "says"),
    [
        ({"metric": "exact_mach"}, {}, "--metric: unknown metric 'exact_mach'"),
        ({"agent": "nobody"}, {}, "--agent: unknown agent 'nobody'"),
        ({"env_mode": "nowhere"}, {}, "--env-mode: unknown environment 'nowhere'"),
        ({}, {"env_mode": "nowhere"}, "item 'one': env_config.env_mode: unknown environment 'nowhere'"),
        ({}, {"env_mode": 7}, "item 'one': env_config.env_mode must be text, got 7"),
    ],
)
def test_an_unknown_name_is_told_with_its_place(options: dict[str, Any], env_config: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as told:
        preflight.check_names(config(**options), [item(**env_config)])
    assert str(told.value).startswith(says)


def test_a_wrong_item_is_told_with_its_file_and_line() -> None:
    places = {"one": "tasks.jsonl, line 3"}
    lenient = config(simulated={}, data={"skip_invalid": True})

    for env_mode, says in (("nowhere", "unknown environment 'nowhere'"), (7, "must be text, got 7")):
        with pytest.raises(UserError, match=rf"^tasks.jsonl, line 3: item 'one': env_config.env_mode:? {says}"):
            preflight.check_names(config(), [item(env_mode=env_mode)], places)
    with pytest.raises(
        UserError, match=r"^tasks.jsonl, line 3: item 'one': env_config.steps must be at least 1, got 0$"
    ):
        preflight.check_items(config(), [item(steps=0)], places)
    assert preflight.check_items(lenient, [item(steps=0), item("two")], places) == (
        [item("two")],
        ["tasks.jsonl, line 3: item 'one': env_config.steps must be at least 1, got 0"],
    )


@pytest.mark.parametrize(
    ("env_config", "says"),
    [
        ({"steps": "many"}, "env_config.steps must be a whole number, got 'many'"),
        ({"seconds": [1]}, "env_config.seconds must be two numbers, the shortest and the longest, got [1]"),
        ({"fail": "badly"}, "env_config.fail must be "),
    ],
)
def test_an_items_own_wrong_option_of_the_simulated_environment_is_named(env_config: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as told:
        preflight.check_items(config(), [item(**env_config)])
    assert str(told.value).startswith(f"item 'one': {says}")


def test_the_environments_of_all_items_are_found() -> None:
    items = [item("one"), item("two", env_mode="math"), item("three", env_mode="math")]

    assert preflight.check_names(config(agent="simulated"), items) == {"simulated", "math"}


def osworld_item(name: str, *, right: bool) -> Item:
    evaluator = {"func": "exact_match", "result": {"type": "vm_command_line", "command": "true"}}
    task = {"id": name, "snapshot": "os", "instruction": "Do it.", "config": [], "evaluator": evaluator}
    return Item(name, "Do it.", metadata=task if right else {**task, "evaluator": {"func": 7}})


def test_a_wrong_item_is_refused_unless_wrong_ones_may_be_left_out() -> None:
    items = [osworld_item("bad", right=False), osworld_item("good", right=True)]
    strict = config(env_mode="osworld")
    lenient = config(env_mode="osworld", data={"skip_invalid": True})

    with pytest.raises(UserError, match=r"^item 'bad': "):
        preflight.check_items(strict, items)
    right, wrong = preflight.check_items(lenient, items)
    assert [found.id for found in right] == ["good"]
    assert len(wrong) == 1
    assert wrong[0].startswith("item 'bad': ")
    with pytest.raises(UserError, match=r"^none of the 1 items is valid, the first because: item 'bad': "):
        preflight.check_items(lenient, items[:1])


def test_the_wrong_item_is_named_and_not_one_that_is_left_out_before_it() -> None:
    good = osworld_item("unsupported", right=True)
    step = {"type": "no_such_step", "parameters": {}}
    unsupported = Item(good.id, good.question, metadata={**good.metadata, "config": [step]})

    with pytest.raises(UserError, match=r"^item 'bad': "):
        preflight.check_items(config(env_mode="osworld"), [unsupported, osworld_item("bad", right=False)])


def test_needs_are_told_by_environment_and_only_where_there_are_any() -> None:
    items = [osworld_item("desktop", right=True), item("light", env_mode="math")]

    assert list(preflight.needs(config(env_mode="osworld"), items)) == ["osworld"]
    assert preflight.needs(config(), [item()]) == {}
    assert preflight.unmet(config(), [item()]) == []


def test_what_items_will_not_get_is_told_for_every_environment() -> None:
    wish = Item("wishes", "Do it.", metadata={**osworld_item("wishes", right=True).metadata, "proxy": True})

    sentences = preflight.unmet(
        config(), [item(), Item(wish.id, "?", env_config={"env_mode": "osworld"}, metadata=wish.metadata)]
    )

    assert len(sentences) == 1
    assert "proxy" in sentences[0]


@pytest.mark.parametrize(
    ("options", "items", "needed"),
    [
        ({}, [item()], True),
        ({}, [item(needs_vm=False)], False),
        ({}, [item("one", needs_vm=False), item("two")], True),
        ({"simulated": {"needs_vm": False}}, [item()], False),
        ({"env_mode": "math"}, [item()], False),
    ],
)
def test_whether_vms_are_needed_is_for_the_items_to_say(
    options: dict[str, Any], items: list[Item], needed: bool
) -> None:
    assert preflight.needs_vm(config(**options), items) is needed


def test_a_network_is_asked_for_where_it_can_be_given(redis_url: str) -> None:
    asking = {"guest_network": "internet", "provider_name": "docker"}

    with pytest.raises(UserError, match=r"^--guest-network: VMs of the provider docker have whatever network it gives"):
        preflight.check_provider(config(vm=asking), ["simulated"])
    preflight.check_provider(config(vm={**asking, "provider_name": "local"}), ["simulated"])
    client = redis.Redis.from_url(redis_url)
    with pytest.raises(UserError, match=r"^--guest-network: a pool's VM hosts set what its VMs may reach"):
        preflight.check_pool(config(vm=asking), client)
    client.close()
    with pytest.raises(UserError, match=r"^--guest-network: .*'a b' is not a host"):
        parse_config({"vm": {"guest_network": "a b"}})


@pytest.mark.parametrize(
    ("options", "environments", "needed"),
    [
        ({}, ["simulated"], False),
        ({}, ["simulated", "math"], True),
        ({"agent": "tool_calling"}, ["simulated"], True),
        ({"agent": "simulated"}, ["math"], False),
        ({"metric": "llm_judgement"}, ["simulated"], True),
    ],
)
def test_whether_a_model_is_asked_is_for_agents_and_metric_to_say(
    options: dict[str, Any], environments: list[str], needed: bool
) -> None:
    assert preflight.needs_model(config(**options), environments) is needed


def test_simulated_vms_have_no_desktop() -> None:
    simulated = config(vm={"provider_name": "simulated"})

    preflight.check_provider(simulated, ["math", "simulated"])
    preflight.check_provider(config(vm={"provider_name": "local"}), ["osworld"])
    with pytest.raises(UserError, match=r"^--provider-name: simulated VMs have no desktop, which --env-mode osworld"):
        preflight.check_provider(simulated, ["math", "osworld"])


def test_this_machine_is_asked_for_its_vms_only_where_items_need_some() -> None:
    unknown = {"vm": {"provider_name": "no-such-provider"}}

    preflight.check_here(config(**unknown), [item(needs_vm=False)], ["simulated"])
    with pytest.raises(UserError, match=r"^--provider-name: "):
        preflight.check_here(config(**unknown), [item()], ["simulated"])


def test_an_environment_that_this_machine_cannot_serve_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    py._reason_against_isolation.cache_clear()  # it is asked once per process
    try:
        with pytest.raises(UserError, match=r"^--env-mode py: "):
            preflight.check_here(config(), [item(needs_vm=False)], ["math", "py"])
    finally:
        py._reason_against_isolation.cache_clear()


def test_a_pool_needs_a_vm_that_is_not_stopped(redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    wanted = config(vm={"pool": "desktops", "provider_name": "local"})
    pool = VMPool(client, "desktops")

    with pytest.raises(UserError, match=r"^--pool: the pool 'desktops' has no VMs; start some with .*--provider local"):
        preflight.check_pool(wanted, client)
    preflight.check_pool(config(vm={"use_pool": False}), client)
    pool.register("vm-0", Endpoint("127.0.0.1", {"control": 1}))
    preflight.check_pool(wanted, client)
    pool.move("vm-0", set(VMState), VMState.STOPPED)
    with pytest.raises(UserError, match=r"no VM of the pool .desktops. is in service: 1 drained"):
        preflight.check_pool(wanted, client)


def test_a_folder_that_cannot_be_made_is_told_before_anything_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "there").mkdir()

    preflight.check_output_dir(tmp_path / "not" / "yet" / "run")
    with pytest.raises(UserError, match=f"^--run-id: {tmp_path}/there exists already; take another name"):
        preflight.check_output_dir(tmp_path / "there")
    with pytest.raises(UserError, match=f"^--output-dir: {tmp_path}/file is not a folder$"):
        preflight.check_output_dir(tmp_path / "file" / "below" / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "there"]


def test_a_folder_that_nobody_may_write_to_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, int]] = []

    def refuse(path: Path, mode: int) -> bool:  # root may write everywhere
        asked.append((path, mode))
        return False

    monkeypatch.setattr(preflight.os, "access", refuse)

    with pytest.raises(UserError, match=f"^--output-dir: {tmp_path} cannot be written to$"):
        preflight.check_output_dir(tmp_path / "not" / "yet")
    assert asked == [(tmp_path, os.W_OK | os.X_OK)]
