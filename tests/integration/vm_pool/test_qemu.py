"""The provider `qemu` with a real guest: booted, looked at, acted upon, reverted, ended. One VM for the whole file."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from desktop_image.cache import guest_cache_folder
from tests.desktops import said_by
from tests.virtual_machines import processes_naming, put_failing_kvm
from vm_pool.providers import guest_server
from vm_pool.providers.base import connect
from vm_pool.providers.qemu import QemuProvider
from vm_pool.providers.qemu.acceleration import choose
from vm_pool.providers.qemu.command_line import DISK
from vm_pool.providers.qemu.folders import folder_of
from vm_pool.states import Endpoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HOST = f"test-qemu-{os.getpid()}"
VM = f"{HOST}-0"
SCREEN = {"screen_width": 1280, "screen_height": 720}

REACH = """
import socket
for address in (("10.0.2.2", {port}), ("10.0.2.3", 53), ("192.0.2.1", 80)):
    try:
        socket.create_connection(address, 5)
        print("reached", address)
    except OSError:
        print("kept")
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[QemuProvider]:
    provider = QemuProvider(SCREEN)
    provider.boot(VM)
    yield provider
    provider.stop(VM)
    assert processes_naming(VM) == []


@pytest.fixture
def endpoint(provider: QemuProvider) -> Endpoint:
    return provider.reset(VM)


def in_guest(provider: QemuProvider, endpoint: Endpoint, command: str) -> str:
    return said_by(connect(provider, VM, "control", endpoint), command, seconds=120)


def test_the_guest_is_well_and_its_screenshot_has_the_right_size(provider: QemuProvider, endpoint: Endpoint) -> None:
    provider.check(VM)
    png, size = guest_server.screenshot(lambda: connect(provider, VM, "control", endpoint), 60)
    assert size == (1280, 720)
    assert len(png) > 5000


def test_actions_reach_the_screen(provider: QemuProvider, endpoint: Endpoint) -> None:
    said = in_guest(
        provider, endpoint, "python -c 'import pyautogui; pyautogui.moveTo(321, 234); print(pyautogui.position())'"
    )
    assert "x=321, y=234" in said


def test_a_reset_leaves_nothing_of_what_was_done(provider: QemuProvider, endpoint: Endpoint) -> None:
    clean = provider.fingerprint(VM)
    in_guest(
        provider,
        endpoint,
        "echo secret | tee /home/user/secret /tmp/secret; echo password | sudo -S sh -c 'echo 1 > /etc/secret';"
        "setsid sleep 1000 >/dev/null 2>&1 & setsid gnome-calculator >/dev/null 2>&1 &",
    )
    assert in_guest(provider, endpoint, "cat /home/user/secret /tmp/secret /etc/secret; pgrep -c sleep").split() == [
        "secret",
        "secret",
        "1",
        "1",
    ]
    assert provider.fingerprint(VM) != clean
    again = provider.reset(VM)
    provider.check(VM)
    assert again == endpoint
    assert provider.fingerprint(VM) == clean
    assert in_guest(
        provider, again, "cat /home/user/secret /tmp/secret /etc/secret 2>/dev/null; pgrep -c sleep"
    ).split() == ["0"]


def test_the_clock_is_right_after_a_reset(provider: QemuProvider, endpoint: Endpoint) -> None:
    before = time.time()
    inside = float(in_guest(provider, endpoint, "date +%s.%N"))
    assert before - 10 < inside < time.time() + 1


def test_no_network_leads_out_of_the_guest(provider: QemuProvider, endpoint: Endpoint) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = in_guest(provider, endpoint, f"python3 - <<'END'\n{REACH.format(port=port)}\nEND")
    assert said.split() == ["kept", "kept", "kept"]


def test_a_guest_that_writes_to_its_console_for_ever_fills_no_disk_of_the_host(
    provider: QemuProvider, endpoint: Endpoint
) -> None:
    folder = folder_of(VM)
    before = {file.name: file.stat().st_size for file in folder.iterdir() if file.name != DISK}
    flood = "timeout 10 yes written to the console > /dev/ttyS0"
    in_guest(provider, endpoint, f"echo password | sudo -S sh -c '{flood}'")

    assert {file.name: file.stat().st_size for file in folder.iterdir() if file.name != DISK} == before
    assert "written to the console | written to the console" in provider._machine(VM).console()


def test_a_second_vm_starts_from_what_the_first_one_saved(provider: QemuProvider) -> None:
    second = f"{HOST}-1"
    endpoint = provider.boot(second)
    try:
        provider.check(second)
        assert provider.fingerprint(second) == provider.fingerprint(VM)
        assert set(endpoint.ports) == set(guest_server.PORTS)
    finally:
        provider.stop(second)
    assert processes_naming(second) == []


def test_a_guest_whose_server_is_dead_fails_its_check_and_is_well_after_a_reset(
    provider: QemuProvider, endpoint: Endpoint
) -> None:
    in_guest(provider, endpoint, "echo password | sudo -S sh -c 'pkill -STOP Xvfb'")
    with pytest.raises(guest_server.DesktopUnwell):
        provider.check(VM)
    provider.reset(VM)
    provider.check(VM)


def test_where_kvm_fails_the_guest_image_no_other_program_tries_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    built = list(guest_cache_folder().iterdir())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    guest_cache_folder().mkdir(parents=True)
    for part in built:
        (guest_cache_folder() / part.name).symlink_to(part)
    qemu = put_failing_kvm(tmp_path, monkeypatch)
    assert choose("auto", qemu).name == "kvm"
    with pytest.raises(RuntimeError, match=f"{HOST}-2 is not ready within 2 s"):
        QemuProvider({**SCREEN, "boot_seconds": 2}).boot(f"{HOST}-2")
    assert "software emulation, which is slow: KVM could not go on booting guest image core" in caplog.text
    chosen = choose("auto", qemu)
    assert chosen.name == "tcg"
    assert "kvm.json until this machine boots again" in chosen.why
    assert processes_naming(f"{HOST}-2") == []
