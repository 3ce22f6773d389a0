"""When a VM of desktop-env's providers must be reverted before its first use."""

from __future__ import annotations

import pytest

from vm_pool.providers.base import option_names
from vm_pool.providers.desktop_env.adapters import ADAPTERS, VMSettings


@pytest.mark.parametrize(
    ("name", "snapshot", "reverts"),
    [
        ("vmware", "init_state", True),
        ("vmware", "mine", True),
        ("aws", "init_state", False),
        ("aws", "ami-of-mine", True),
        ("azure", "mine", True),
        ("docker", "mine", False),
        ("aliyun", "mine", False),
    ],
)
def test_a_vm_begins_with_the_snapshot_that_is_wanted(name: str, snapshot: str, reverts: bool) -> None:
    adapter = object.__new__(ADAPTERS[name])  # what its constructor needs is not on every machine
    adapter.settings = VMSettings("host-0", (), None, snapshot, True, "Ubuntu", (1920, 1080))
    assert adapter.reverts_at_start == reverts


@pytest.mark.parametrize("name", ADAPTERS)
def test_only_providers_with_snapshots_by_name_have_that_option(name: str) -> None:
    assert ("snapshot_name" in option_names(name)) == ADAPTERS[name].has_snapshots
