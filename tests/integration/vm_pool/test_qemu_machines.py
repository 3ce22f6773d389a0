"""What the provider `qemu` does around a guest, shown on machines with an empty disk: no guest image is needed, nothing boots."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.paths import paths_below
from tests.virtual_machines import processes_naming, put_failing_kvm, wait_until
from vm_pool.errors import ProviderError
from vm_pool.providers.base import check_available, load_provider
from vm_pool.providers.qemu import QemuProvider, acceleration
from vm_pool.providers.qemu.acceleration import Acceleration, choose, probe
from vm_pool.providers.qemu.process import QemuStopped
from vm_pool.providers.qemu.qmp import QMP, QMPError

QEMU = shutil.which("qemu-system-x86_64") or "qemu-system-x86_64"
HOST = f"test-qemu-{os.getpid()}"
VM = f"{HOST}-0"

OWNER = """
import sys
from vm_pool.providers.qemu import QemuProvider
QemuProvider({"path_to_vm": sys.argv[1], "accelerator": "tcg", "memory_mib": 256}).boot(sys.argv[2])
"""


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    path = tmp_path / "empty, with a comma.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "1G"], check=True)
    return path


def provider_for(disk: Path, **options: object) -> QemuProvider:
    return QemuProvider({"path_to_vm": disk, "accelerator": "tcg", "memory_mib": 256, **options})


def traces(tmp_path: Path, vm_id: str = VM) -> list[str]:
    found = [str(path) for path in paths_below(tmp_path / "cache", vm_id)]
    return found + processes_naming(str(tmp_path))


def in_background(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, raised


def test_a_guest_that_never_answers_is_given_up_and_leaves_nothing(disk: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=f"{VM} is not ready within 1 s: GET /screenshot"):
        provider_for(disk, boot_seconds=1).boot(VM)
    assert traces(tmp_path) == []


def test_a_boot_ends_when_its_vm_is_stopped(disk: Path, tmp_path: Path) -> None:
    provider = provider_for(disk)
    thread, raised = in_background(lambda: provider.boot(VM))
    wait_until(lambda: qemu_of(tmp_path))
    provider.stop(VM)
    thread.join(30)
    assert [type(error) for error in raised] == [QemuStopped]
    # Both threads end it: the program that removes its folder may be orphaned.
    wait_until(lambda: traces(tmp_path) == [])


@pytest.mark.skipif(os.geteuid() != 0, reason="a network for guests needs root")
@pytest.mark.parametrize("guest_network", ["none", "internet"])
def test_qemu_has_a_network_of_its_own(disk: Path, tmp_path: Path, guest_network: str) -> None:
    """The ports that it forwards are nobody's on this machine who has no lease."""
    provider = provider_for(disk, guest_network=guest_network)
    thread, raised = in_background(lambda: provider.boot(VM))
    wait_until(lambda: qemu_of(tmp_path))
    (qemu,) = qemu_of(tmp_path)
    network = Path(f"/proc/{qemu}/ns/net").readlink()
    wait_until(lambda: provider._processes[VM].ports)
    assert sockets_of(qemu) & sockets_in(f"/proc/{qemu}/net/tcp") != set()
    assert sockets_of(qemu) & sockets_in("/proc/self/net/tcp") == set()
    provider._processes[VM].connect("control").close()
    provider.stop(VM)
    thread.join(30)
    assert [type(error) for error in raised] == [QemuStopped]
    assert network != Path("/proc/self/ns/net").readlink()
    wait_until(lambda: traces(tmp_path) == [])  # as above


def test_a_boot_ends_when_qemu_does(disk: Path, tmp_path: Path) -> None:
    provider = provider_for(disk)
    thread, raised = in_background(lambda: provider.boot(VM))
    wait_until(lambda: qemu_of(tmp_path))
    os.kill(qemu_of(tmp_path)[0], signal.SIGKILL)
    thread.join(30)
    assert len(raised) == 1
    assert "QEMU has ended" in str(raised[0]) or "QEMU did not start" in str(raised[0])
    assert traces(tmp_path) == []


def test_qemus_own_words_say_why_it_does_not_start(disk: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=f"{VM}: QEMU did not start: qemu-system-x86_64: .*memory"):
        provider_for(disk, memory_mib=1_000_000_000).boot(VM)
    assert traces(tmp_path) == []


@pytest.fixture
def owner(disk: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, disk, VM])
    try:
        wait_until(lambda: qemu_of(tmp_path))
        wait_until(lambda: os.geteuid() != 0 or holds_network(owner.pid))  # else it is still being launched
        yield owner
    finally:
        owner.kill()
        owner.wait()


def test_a_killed_owner_leaves_nothing(owner: subprocess.Popen[bytes], tmp_path: Path) -> None:
    owner.kill()
    wait_until(lambda: traces(tmp_path) == [])


@pytest.mark.parametrize("host", [HOST, f"{HOST}-another"], ids=["its own", "another"])
def test_what_is_left_when_everything_was_killed_is_reaped(
    owner: subprocess.Popen[bytes], disk: Path, tmp_path: Path, host: str
) -> None:
    keeper = next(int(line.split()[0]) for line in processes_naming(str(tmp_path)) if "keeper.sh" in line)
    os.kill(keeper, signal.SIGKILL)
    owner.kill()
    owner.wait()
    wait_until(lambda: not Path(f"/proc/{keeper}").exists())  # a signal takes its time on a busy machine
    assert qemu_of(tmp_path) != []
    provider = provider_for(disk)
    assert provider.reap_leftovers(host) == [VM]
    assert traces(tmp_path) == []
    assert provider.reap_leftovers(host) == []


@pytest.mark.parametrize("who", ["its owner and its keeper", "its owner", "a keeper of an earlier release"])
def test_another_host_leaves_alone_what_is_used(
    owner: subprocess.Popen[bytes], disk: Path, tmp_path: Path, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = next(int(line.split()[0]) for line in processes_naming(str(tmp_path)) if "keeper.sh" in line)
    if who == "its owner":
        os.kill(keeper, signal.SIGKILL)
    elif who == "a keeper of an earlier release":  # whose hosts do not hold folders
        monkeypatch.setattr(fcntl, "flock", lambda *_args: None)
    assert provider_for(disk).reap_leftovers(f"{HOST}-another") == []
    assert qemu_of(tmp_path) != []
    owner.kill()
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    owner.wait()

    def reaped() -> bool:
        """A killed process's lock lasts for as long as anything refers to its open file: a next look may be needed."""
        provider_for(disk).reap_leftovers(f"{HOST}-another")
        return traces(tmp_path) == []

    wait_until(reaped)


def qemu_of(tmp_path: Path) -> list[int]:
    return [int(line.split()[0]) for line in processes_naming(str(tmp_path)) if line.split()[1].endswith("x86_64")]


def sockets_of(pid: int) -> set[str]:
    links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}


def sockets_in(table: str) -> set[str]:
    return {line.split()[9] for line in Path(table).read_text(encoding="utf-8").splitlines()[1:]}


def holds_network(pid: int) -> bool:
    return any(str(entry.readlink()).startswith("net:[") for entry in Path(f"/proc/{pid}/fd").iterdir())


@pytest.fixture
def qmp() -> Iterator[tuple[QMP, subprocess.Popen[bytes]]]:
    ours, qemus = socket.socketpair()
    with qemus:
        command = [QEMU, "-machine", "none", "-nodefaults", "-display", "none", "-qmp", "stdio"]
        process = subprocess.Popen(command, stdin=qemus.fileno(), stdout=qemus.fileno())
    qmp = QMP(ours, "a machine")
    try:
        qmp.begin(30)
        yield qmp, process
    finally:
        process.kill()
        process.wait()
        qmp.close()


def test_a_monitor_refuses_with_a_sentence(qmp: tuple[QMP, subprocess.Popen[bytes]]) -> None:
    monitor, _ = qmp
    with pytest.raises(QMPError, match="a machine: device_del: Device 'nothing' not found"):
        monitor.execute("device_del", {"id": "nothing"}, seconds=10)
    assert monitor.execute("query-status", seconds=10)["status"] == "running"


def test_a_job_that_fails_says_why(qmp: tuple[QMP, subprocess.Popen[bytes]]) -> None:
    monitor, _ = qmp
    with pytest.raises(QMPError, match="a machine: snapshot-load: "):
        monitor.run_job("snapshot-load", {"tag": "none", "vmstate": "none", "devices": []}, seconds=10)


def test_a_frozen_qemu_is_given_up_and_its_late_answer_is_nobodys(qmp: tuple[QMP, subprocess.Popen[bytes]]) -> None:
    monitor, process = qmp
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(QMPError, match="query-version: QEMU does not answer"):
        monitor.execute("query-version", seconds=0.2)
    process.send_signal(signal.SIGCONT)
    assert monitor.execute("query-status", seconds=10)["status"] == "running"


def test_the_end_of_qemu_is_noticed(qmp: tuple[QMP, subprocess.Popen[bytes]]) -> None:
    monitor, process = qmp
    process.kill()
    with pytest.raises(QMPError, match="QEMU has ended"):
        monitor.execute("query-status", seconds=10)


def test_the_probe_runs_a_machine_and_tells_when_it_cannot() -> None:
    assert probe(QEMU, Acceleration("tcg", "")) == ""
    assert "could not be run with" in probe("/bin/false", Acceleration("kvm", ""))


PROBING = """
import sys
from vm_pool.providers.qemu import acceleration
acceleration.PROBE_SECONDS = 1.0
acceleration.probe(sys.argv[1], acceleration.Acceleration("kvm", ""))
"""


@pytest.fixture
def hanging_qemu(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "hanging-qemu"
    path.write_text("#!/bin/sh\nwhile :; do sleep 0.1; done\n")
    path.chmod(0o755)
    yield path
    for line in processes_naming(str(path)):
        with suppress(ProcessLookupError):
            os.kill(int(line.split()[0]), signal.SIGKILL)


def test_a_probe_that_takes_too_long_leaves_no_process(hanging_qemu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceleration, "PROBE_SECONDS", 1.0)
    assert "did not run through within 1 s with kvm" in probe(str(hanging_qemu), Acceleration("kvm", ""))
    wait_until(lambda: processes_naming(str(hanging_qemu)) == [], seconds=20)


def test_nor_does_one_whose_owner_is_killed(hanging_qemu: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", PROBING, str(hanging_qemu)]
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment) as owner:
        wait_until(lambda: any("/bin/sh" in line for line in processes_naming(str(hanging_qemu))), seconds=20)
        owner.kill()
    wait_until(lambda: processes_naming(str(hanging_qemu)) == [], seconds=20)


def test_what_the_probe_found_is_remembered(tmp_path: Path) -> None:
    first = choose("auto", QEMU)
    assert first.name == "kvm" or first.why
    if first.why and "could not be run" in first.why:
        [remembered] = (tmp_path / "cache").rglob("kvm.json")
        remembered.write_text(remembered.read_text().replace("seven", "no"))
        assert "of no instructions" in choose("auto", QEMU).why


@pytest.mark.slow
def test_where_kvm_fails_a_guest_software_takes_over(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    qemu = put_failing_kvm(tmp_path, monkeypatch)
    provider = provider_for(disk, boot_seconds=2, accelerator="auto")
    for vm_id in (VM, f"{HOST}-1"):
        with pytest.raises(RuntimeError, match=f"{vm_id} is not ready within 2 s"):
            provider.boot(vm_id)
        assert traces(tmp_path, vm_id) == []

    assert caplog.text.count(f"software emulation, which is slow: KVM could not go on booting {disk}") == 1
    assert choose("auto", qemu).name == "kvm", "an image of somebody's own speaks for no other"


def test_where_kvm_was_asked_for_its_failure_names_the_vm_and_is_tried_again(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_failing_kvm(tmp_path, monkeypatch)
    provider = provider_for(disk, boot_seconds=2, accelerator="kvm")
    for vm_id in (VM, f"{HOST}-1"):
        with pytest.raises(RuntimeError, match=f"{vm_id}: KVM could not go on running its guest"):
            provider.boot(vm_id)
        # The kernel ends what the failing QEMU started, a moment after that one itself was waited for.
        wait_until(lambda vm_id=vm_id: traces(tmp_path, vm_id) == [], seconds=10)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"path_to_vm": "/nowhere/disk.qcow2"}, "path_to_vm=/nowhere/disk.qcow2: there is no such file"),
        ({"memory_mib": 10}, "does not accept its options: memory_mib: Input should be greater than or equal to 256"),
        ({"guest_network": "http://x"}, "does not accept its options: guest_network: "),
        ({"colour": "red"}, "does not accept its options: colour: Extra inputs are not permitted"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ProviderError, match=sentence):
        check_available(load_provider("qemu", options))


def test_a_broken_image_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.qcow2"
    broken.write_bytes(b"QFI\xfb\0\0\0\3" + b"\xff" * 200)
    with pytest.raises(ProviderError, match=f"path_to_vm={broken}: not a disk image that QEMU can read"):
        check_available(load_provider("qemu", {"path_to_vm": broken}))


def test_without_qemu_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ProviderError, match="needs qemu-system-x86_64, which is not installed: apt-get install qemu-system"
    ):
        check_available(load_provider("qemu", {}))
    (tmp_path / "qemu-system-x86_64").symlink_to(QEMU)
    with pytest.raises(ProviderError, match="needs qemu-img, which is not installed: apt-get install qemu-utils"):
        check_available(load_provider("qemu", {}))


def test_a_disk_that_does_not_boot_is_named_where_its_tasks_were_to_be_checked(tmp_path: Path) -> None:
    disk, tasks = tmp_path / "empty.qcow2", tmp_path / "tasks.jsonl"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", disk, "1G"], check=True)
    evaluator = {"func": "infeasible"}
    tasks.write_text(json.dumps({"id": "a", "question": "?", "evaluator": evaluator, "config": []}) + "\n")
    options = ["-o", f"path_to_vm={disk}", "-o", "accelerator=tcg", "-o", "memory_mib=256", "-o", "boot_seconds=2"]

    done = subprocess.run(
        [sys.executable, "scripts/build_guest.py", "--check", tasks, "--provider", "qemu", *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert "error: the VM does not start: " in done.stderr
    assert "is not ready within 2 s" in done.stderr
    assert "Traceback" not in done.stderr
