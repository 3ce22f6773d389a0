"""When a VM of desktop-env's providers must be reverted before its first use."""

from __future__ import annotations

import pytest

from vm_pool.providers.base import load_provider, option_names
from vm_pool.providers.desktop_env.adapter import Gone, Unavailable, VMSettings
from vm_pool.providers.desktop_env.adapters import ADAPTERS
from vm_pool.providers.desktop_env.provider import DesktopEnvProvider

USUAL, OWN = "init_state", "mine"
REVERTED: dict[str, set[str]] = {
    "vmware": {USUAL, OWN},
    "virtualbox": {USUAL, OWN},
    "docker": set(),
    "aws": {OWN},
    "azure": {USUAL, OWN},
    "aliyun": set(),
    "volcengine": set(),
}
"""The snapshots to which a VM of each provider is reverted at its start.

VMs that outlast a host keep what their last holder left on their disks. Those that are made for a host are new, but
may be made from another image than the wanted one.
"""


def settings(*paths: str, snapshot: str = USUAL) -> VMSettings:
    return VMSettings("host-0", paths, None, snapshot, True, "Ubuntu", (1920, 1080))


@pytest.mark.parametrize("snapshot", [USUAL, OWN])
@pytest.mark.parametrize("name", ADAPTERS)
def test_a_vm_begins_with_the_snapshot_that_is_wanted(name: str, snapshot: str) -> None:
    adapter = object.__new__(ADAPTERS[name])  # what its constructor needs is not on every machine
    adapter.settings = settings(snapshot=snapshot)
    assert adapter.reverts_at_start == (snapshot in REVERTED[name])


@pytest.mark.parametrize("name", ["aws", "aliyun", "volcengine"])
def test_no_instance_is_named_where_it_would_be_deleted(name: str) -> None:
    """It would be handed out once, as it is, and its name would lead to nothing afterwards."""
    with pytest.raises(Unavailable, match=f"^provider '{name}' deletes its instances .*: leave path_to_vm out$"):
        ADAPTERS[name](name, settings("i-0123"))


@pytest.mark.parametrize("name", ADAPTERS)
def test_both_sides_know_which_providers_make_and_delete_vms(name: str) -> None:
    """A keeper finishes what it makes, and its client does not kill it meanwhile."""
    provider = load_provider(name, {})
    assert isinstance(provider, DesktopEnvProvider)
    assert provider.makes_vms == ADAPTERS[name].deletes_vms


@pytest.mark.parametrize("name", ADAPTERS)
def test_only_providers_with_snapshots_by_name_have_that_option(name: str) -> None:
    assert ("snapshot_name" in option_names(name)) == ADAPTERS[name].has_snapshots


def test_an_instance_that_alibaba_does_not_know_is_gone_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = pytest.importorskip("alibabacloud_tea_openapi.exceptions")
    code = "InvalidInstanceId.NotFound"

    class Cloud:
        region = "eu-central-1"

        def stop_emulator(self, path: str) -> None:
            raise answers.ClientException(status_code=404, code=code, message=f"no {path}")

    adapter = object.__new__(ADAPTERS["aliyun"])
    adapter.provider = Cloud()
    with pytest.raises(Gone, match="no i-0123"):
        adapter.stop("i-0123")
    code = "Forbidden.RAM"
    with pytest.raises(answers.ClientException, match="no i-0123"):
        adapter.stop("i-0123")

    monkeypatch.setenv("ALIYUN_ACCESS_KEY_ID", "one")
    first = adapter.account()
    monkeypatch.setenv("ALIYUN_ACCESS_KEY_ID", "another")
    assert first is not None
    assert adapter.account() not in {first, None}


def test_a_vm_that_azure_does_not_know_is_gone() -> None:
    answers = pytest.importorskip("azure.core.exceptions")

    class Cloud:
        def stop_emulator(self, path: str) -> None:
            raise answers.ResourceNotFoundError(f"no {path}")

    adapter = object.__new__(ADAPTERS["azure"])
    adapter.provider, adapter.module = Cloud(), answers  # desktop-env's module has imported this error's class
    with pytest.raises(Gone, match="no group/vm"):
        adapter.stop("group/vm")
