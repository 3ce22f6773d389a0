"""What items may ask of their VM, and what they are told when they will not get it."""

from __future__ import annotations

from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.environments.osworld.environment import OSWorldEnvironment
from rollout_tasks.runs import preflight
from rollout_tasks.vm_options import provider_options

EVALUATOR = {"func": "infeasible"}


def item(snapshot: str | None = None, **env_config: Any) -> Item:
    """An item; `snapshot` is the task file's own word for its group."""
    metadata = {"evaluator": EVALUATOR} | ({"snapshot": snapshot} if snapshot else {})
    return Item("7", "Do it", metadata=metadata, env_config=env_config)


def run(provider: str, *, pool: bool) -> RunConfig:
    return parse_config({"vm": {"provider_name": provider, "use_pool": pool, "snapshot_name": "clean"}})


@pytest.mark.parametrize(
    ("of_item", "named"),
    [
        (item(snapshot="chrome"), None),
        (Item("7", "Do it", metadata={"snapshot": "chrome"}, env_config={"snapshot": "chrome"}), None),
        (Item("7", "Do it", metadata={"snapshot": "chrome"}, env_config={"snapshot": "mine"}), "mine"),
        (Item("7", "Do it", env_config={"snapshot": "mine"}), "mine"),
        (item(), None),
    ],
)
def test_only_an_env_config_names_a_snapshot(of_item: Item, named: str | None) -> None:
    assert OSWorldEnvironment.snapshot(of_item) == named


def test_a_snapshot_reaches_providers_that_have_any_by_name() -> None:
    assert provider_options(run("vmware", pool=False))["snapshot_name"] == "clean"
    assert provider_options(run("vmware", pool=False), snapshot="mine")["snapshot_name"] == "mine"
    given = run("vmware", pool=False).model_dump()
    given["vm"]["provider_options"] = {"snapshot_name": "given"}
    assert provider_options(parse_config(given), snapshot="mine")["snapshot_name"] == "mine"
    assert "snapshot_name" not in provider_options(run("local", pool=False), snapshot="mine")


@pytest.mark.parametrize(
    ("provider", "pool", "said"),
    [
        ("vmware", False, []),
        ("aws", False, []),
        (
            "docker",
            False,
            [
                "1 item names a snapshot in env_config and will not get it: VMs of the provider docker have no snapshots by"
                " name"
            ],
        ),
        (
            "vmware",
            True,
            [
                "1 item names a snapshot in env_config and will not get it: a pool's VMs are reset to the snapshot of their"
                " host (--no-pool gives every rollout a VM of its own)"
            ],
        ),
        (
            "local",
            False,
            [
                "1 item names a snapshot in env_config and will not get it: VMs of the provider local have no snapshots by"
                " name"
            ],
        ),
    ],
)
def test_a_snapshot_that_cannot_be_had_is_told(provider: str, pool: bool, said: list[str]) -> None:
    asking = Item("7", "Do it", metadata={"evaluator": EVALUATOR}, env_config={"snapshot": "mine"})
    assert preflight.unmet(run(provider, pool=pool), [asking, item(snapshot="os")]) == said


def test_proxies_and_fixed_addresses_are_told() -> None:
    asking = [item(proxy=True), item(proxy=True, fixed_ip=True), item(proxy=False)]
    assert preflight.unmet(run("local", pool=True), asking) == [
        "2 items ask for a proxy: used by workers whose environment has PROXY_CONFIG_FILE, else they go without",
        "1 item asks for a fixed IP address: no provider gives one; VMs keep their own",
    ]


def test_items_of_other_environments_ask_for_nothing() -> None:
    assert preflight.unmet(run("local", pool=True), [Item("7", "1+1?", env_config={"env_mode": "math"})]) == []
