"""What is logged while a virtual machine starts, which takes minutes at times."""

from __future__ import annotations

import logging

import pytest

from vm_pool.providers.qemu import provider
from vm_pool.providers.qemu.process import QemuProcess, QemuStopped
from vm_pool.providers.qemu.provider import StartProgress

WAITING = "Another process is building this image, or what a killed one started has not ended; waiting for it"


def test_a_step_is_logged_when_it_begins_not_at_every_look(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    progress = StartProgress(QemuProcess("vm-1"))

    for _ in range(20):
        progress(WAITING)
    for count in range(1, 901):
        progress(f"Unpacking packages: {count} of 900")
    progress("Writing the guest's disk")

    assert caplog.messages == [WAITING, "Unpacking packages: 1 of 900", "Writing the guest's disk"]


def test_a_long_step_is_logged_again(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(provider, "SAY_EVERY_SECONDS", 0.0)
    progress = StartProgress(QemuProcess("vm-1"))

    for _ in range(3):
        progress(WAITING)

    assert caplog.messages == [WAITING] * 3


def test_a_machine_that_is_to_stop_ends_its_start() -> None:
    machine = QemuProcess("vm-1")
    machine.end()
    with pytest.raises(QemuStopped, match="vm-1 was stopped before it was up"):
        StartProgress(machine)(WAITING)
