"""Finding providers, and what the simulated one draws."""

from __future__ import annotations

import statistics
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from vm_pool.canary import CleanState
from vm_pool.errors import ProviderError, VMsInUse
from vm_pool.gate import Gates
from vm_pool.machine import Machine
from vm_pool.providers import load_provider, provider_names
from vm_pool.providers.simulated import Lognormal, SimulatedOptions, SimulatedProvider, Uniform
from vm_pool.unpooled import unpooled_vm


def test_installed_providers_are_found_by_name() -> None:
    assert "simulated" in provider_names()
    assert isinstance(load_provider("simulated", {}), SimulatedProvider)


def test_an_unknown_provider_is_named_beside_the_known_ones() -> None:
    with pytest.raises(ProviderError, match=r"no VM provider is called 'cloud9'; installed: .*simulated"):
        load_provider("cloud9", {})


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"boot": 1}, "boot"),
        ({"boot_seconds": -1}, "boot_seconds"),
        ({"boot_seconds": float("nan")}, "boot_seconds"),
        ({"reset_seconds": {"shortest": 1}}, "reset_seconds"),
        ({"reset_failure": 1.5}, "reset_failure"),
        ({"seed": "x"}, "seed"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], names: str) -> None:
    with pytest.raises(ProviderError, match=f"VM provider 'simulated' does not accept its options: {names}"):
        load_provider("simulated", options)


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        (2, 2.0),
        ({"shortest": 1, "longest": 2}, Uniform(shortest=1, longest=2)),
        ({"median": 3, "sigma": 0.5}, Lognormal(median=3, sigma=0.5)),
    ],
)
def test_times_are_fixed_or_drawn(given: object, understood: object) -> None:
    assert SimulatedOptions.model_validate({"reset_seconds": given}).reset_seconds == understood


class Rack(SimulatedProvider):
    """Forgets to return where a VM answers."""

    def boot(self, vm_id: str) -> Any:
        super().boot(vm_id)

    def reset(self, vm_id: str) -> Any:
        super().reset(vm_id)


def test_a_provider_that_does_not_say_where_a_vm_answers_is_named() -> None:
    provider = Rack({"boot_seconds": 0, "reset_seconds": 0})
    machine = Machine("rack-0", provider, Gates(), CleanState())

    with pytest.raises(TypeError, match=r"^Rack\.boot returned None instead of an Endpoint$"):
        machine.boot(1)
    with pytest.raises(TypeError, match=r"^Rack\.reset returned None instead of an Endpoint$"):
        machine.reset(2)
    with (
        pytest.raises(TypeError, match=r"^Rack\.boot returned None instead of an Endpoint$"),
        unpooled_vm(provider, "rack-0"),
    ):
        pass


class Stubborn(SimulatedProvider):
    """Stops nothing."""

    def stop(self, vm_id: str) -> None:
        raise TimeoutError(f"{vm_id} does not end")


def test_a_vm_that_cannot_be_stopped_hides_nothing_of_what_went_before(caplog: pytest.LogCaptureFixture) -> None:
    quick = {"boot_seconds": 0, "reset_seconds": 0}
    with unpooled_vm(Stubborn(quick), "rack-0") as vm:
        vm.check()
        assert (vm.address, vm.ports, vm.ended_early, vm.fence) == (vm.endpoint.address, vm.endpoint.ports, False, 0)
    with (
        pytest.raises(RuntimeError, match="boot of rack-1 failed"),
        unpooled_vm(Stubborn({**quick, "boot_failure": 1.0}), "rack-1"),
    ):
        pytest.fail("it was handed out")
    assert caplog.messages == [f"rack-{n}: it may still run: it could not be stopped" for n in (0, 1)]


class Crowded(SimulatedProvider):
    """Cannot look for what others left."""

    why: Exception = OSError("no process can be started")

    def reap_leftovers(self, host_id: str) -> tuple[str, ...]:  # noqa: ARG002 (the protocol's)
        raise self.why


def test_what_others_left_keeps_no_vm_from_being_used(caplog: pytest.LogCaptureFixture) -> None:
    provider = Crowded({"boot_seconds": 0, "reset_seconds": 0})
    with unpooled_vm(provider, "rack-0") as vm:
        vm.check()
    assert caplog.messages == ["rack-0: what others left was not ended: OSError: no process can be started"]

    provider.why = VMsInUse("process 7 of this machine uses rack-0")
    with pytest.raises(VMsInUse), unpooled_vm(provider, "rack-0"):
        pytest.fail("it was handed out")


def test_draws_have_their_distributions_middle() -> None:
    import random

    chance = random.Random(1)
    uniform = [Uniform(shortest=1, longest=3).draw(chance) for _ in range(2000)]
    heavy = [Lognormal(median=2, sigma=1).draw(chance) for _ in range(2000)]
    assert 1 <= min(uniform) <= max(uniform) <= 3
    assert statistics.mean(uniform) == pytest.approx(2, abs=0.1)
    assert statistics.median(heavy) == pytest.approx(2, rel=0.15)
    assert statistics.mean(heavy) > 3


def _failures(seed: int) -> list[bool]:
    provider = SimulatedProvider({"boot_seconds": 0, "reset_seconds": 0, "reset_failure": 0.5, "seed": seed})
    provider.boot("vm-0")
    outcomes = []
    for _ in range(40):
        try:
            provider.reset("vm-0")
            outcomes.append(False)
        except RuntimeError:
            outcomes.append(True)
    return outcomes


def test_the_same_seed_fails_at_the_same_resets() -> None:
    assert _failures(1) == _failures(1)
    assert _failures(1) != _failures(2)
    assert 5 < sum(_failures(1)) < 35


def test_resets_fail_while_the_file_exists(tmp_path: Path) -> None:
    trouble = tmp_path / "trouble"
    provider = SimulatedProvider({"boot_seconds": 0, "reset_seconds": 0, "fail_resets_while": str(trouble)})
    provider.boot("vm-0")
    provider.reset("vm-0")
    trouble.touch()
    with pytest.raises(RuntimeError, match="reset of vm-0 failed, as trouble exists"):
        provider.reset("vm-0")
    trouble.unlink()
    provider.reset("vm-0")


def test_only_a_running_vm_passes_the_check() -> None:
    provider = SimulatedProvider({"boot_seconds": 0})
    with pytest.raises(RuntimeError, match="vm-0 is not running"):
        provider.check("vm-0")
    provider.boot("vm-0")
    provider.check("vm-0")
    provider.stop("vm-0")
    provider.stop("vm-0")
    with pytest.raises(RuntimeError, match="vm-0 is not running"):
        provider.reset("vm-0")


def test_a_stop_ends_a_boot_that_is_going_on() -> None:
    provider = SimulatedProvider({"boot_seconds": 3600})
    errors = []

    def boot() -> None:
        try:
            provider.boot("vm-0")
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=boot)
    thread.start()
    while thread.is_alive():
        provider.stop("vm-0")
        time.sleep(0.005)
    assert errors == ["vm-0 was stopped during its boot"]
