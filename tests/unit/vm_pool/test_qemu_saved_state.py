"""What a machine's first boot saved, when it turns out to be of no use."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from desktop_image.cache import guest_cache_folder
from vm_pool.providers.qemu.command_line import DISK
from vm_pool.providers.qemu.machine_type import MachineType


def test_a_saved_state_without_its_disk_is_made_anew_at_the_next_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    saves: list[Path] = []

    def save(_machine: Any, target: Path, _progress: Any) -> None:
        saves.append(target)
        target.mkdir()
        (target / DISK).touch()

    options = SimpleNamespace(accelerator="tcg", profile="core")
    kind: Any = MachineType("qemu", options, None, SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setattr(kind, "_identity", lambda: "1")
    monkeypatch.setattr(kind, "_save", save)
    monkeypatch.setattr(kind, "revert", lambda _machine: None)
    monkeypatch.setattr("vm_pool.providers.qemu.machine_type.snapshot_nodes", lambda _boot: ())
    machine = SimpleNamespace(vm_id="box-0", stopped=False, launch=lambda *_given: None)
    (guest_cache_folder() / "saved-1").mkdir(parents=True)  # as a host that was killed left it

    with pytest.raises(RuntimeError, match=r"^box-0: what a first boot saved is of no use, and is made anew .*has no"):
        kind.start(machine, lambda _sentence: None)
    assert saves == []

    kind.start(machine, lambda _sentence: None)
    assert len(saves) == 1
