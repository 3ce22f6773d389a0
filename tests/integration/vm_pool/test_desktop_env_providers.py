"""desktop-env's own providers behind ours, driving a hypervisor that stands in for VMware's and VirtualBox's programs."""

from __future__ import annotations

import http.server
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from desktop_image.locks import is_held
from rollout_tasks.config import parse_config
from rollout_tasks.execution.heartbeat import Pulse
from rollout_tasks.execution.leased_vm import leased_vm
from rollout_tasks.interruption import Interruption
from tests import fake_hypervisor
from tests.paths import paths_below
from tests.virtual_machines import processes_naming, wait_until
from vm_pool.errors import ProviderError, VMsInUse
from vm_pool.gate_relay import relayed
from vm_pool.providers import folder_lock
from vm_pool.providers.base import Provider, check_available, load_provider
from vm_pool.providers.desktop_env import keeper_client
from vm_pool.providers.desktop_env.abandoned import end_abandoned
from vm_pool.providers.desktop_env.keeper_client import PROGRAM, KeeperClient, KeeperFailed
from vm_pool.providers.desktop_env.keeper_files import lock_of, record_of, state_folder
from vm_pool.providers.desktop_env.options import DesktopEnvOptions
from vm_pool.states import Endpoint

pytest.importorskip("desktop_env")

HOST = f"test-de-{os.getpid()}"
VM = f"{HOST}-0"
PROGRAMS = {"vmware": "vmrun", "virtualbox": "VBoxManage"}
KINDS = ["vmware", pytest.param("virtualbox", marks=pytest.mark.slow)]

REAPER = """
import sys
from vm_pool.providers.base import load_provider
print(load_provider("vmware", {"stop_seconds": 30}).reap_leftovers(sys.argv[1]))
"""
OWNER = """
import json, sys, time
from vm_pool.providers.base import load_provider
provider = load_provider(sys.argv[1], json.loads(sys.argv[2]))
provider.boot(sys.argv[3])
print("up", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The hypervisor's folder, its programs being in the path."""
    home, programs = tmp_path / "vms", tmp_path / "bin"
    home.mkdir()
    programs.mkdir()
    for program in PROGRAMS.values():
        (programs / program).write_text(f'#!/bin/sh\nexec {sys.executable} {fake_hypervisor.__file__} {program} "$@"\n')
        (programs / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_HYPERVISOR", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield home
    for line in processes_naming(str(home)):
        os.kill(int(line.split()[0]), signal.SIGKILL)


def vm(home: Path, kind: str, number: int = 0) -> str:
    """A VM of the hypervisor, as the provider is told of it."""
    address = f"127.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250}.{number + 10}"
    path = fake_hypervisor.add_vm(home, f"Ubuntu{number}", address)
    return str(path) if kind == "vmware" else path.stem


def make(kind: str, **options: object) -> Provider:
    return load_provider(kind, {"headless": True, "stop_seconds": 30, **options})


def on_disk(endpoint: Endpoint, write: str | None = None) -> str:
    url = f"http://{endpoint.address}:{endpoint.ports['control']}/disk"
    reply = httpx.get(url) if write is None else httpx.post(url, content=write)
    return reply.text


def traces(home: Path) -> list[str]:
    records = [str(path) for path in paths_below(home.parent / "cache", f"{HOST}*")]
    return records + processes_naming(str(home)) + processes_naming(str(home.parent / "cache"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_vm_is_booted_clean_reverted_and_stopped(home: Path, kind: str) -> None:
    path = vm(home, kind)
    (home / "Ubuntu0" / "disk").write_text("left by an earlier user")
    provider = make(kind, path_to_vm=path)
    check_available(provider)
    endpoint = provider.boot(VM)
    provider.check(VM)
    assert on_disk(endpoint) == "clean"
    on_disk(endpoint, write="dirty")
    assert on_disk(endpoint) == "dirty"
    endpoint = provider.reset(VM)
    provider.check(VM)
    assert on_disk(endpoint) == "clean"
    provider.stop(VM)
    assert traces(home) == []
    provider.stop(VM)
    with pytest.raises(KeeperFailed, match=f"{VM} is not running"):
        provider.check(VM)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vmware", "virtualbox"])
def test_an_items_own_snapshot_is_what_a_vm_of_its_own_starts_from(home: Path, kind: str) -> None:
    path = vm(home, kind)
    (home / "Ubuntu0" / "with-accounts").write_text("accounts")
    own = {"provider_name": kind, "use_pool": False, "path_to_vm": path}
    config = parse_config({"vm": own, "desktop": {"headless": True}})
    pulse = Pulse("run", "item#0", "token", interruption=Interruption(), delivery_tag=None)
    for snapshot, disk in (("with-accounts", "accounts"), (None, "clean")):
        with leased_vm(config, "item#0", "worker", pulse, snapshot=snapshot) as lent, relayed(lent.endpoint) as there:
            assert httpx.get(f"http://{there.address}:{there.ports['control']}/disk").text == disk
        assert processes_naming(str(home)) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_revert_that_fails_is_an_error(home: Path, kind: str) -> None:
    provider = make(kind, path_to_vm=vm(home, kind))
    provider.boot(VM)
    (home / ("fail-revertToSnapshot" if kind == "vmware" else "fail-snapshot")).touch()
    with pytest.raises(KeeperFailed, match="is broken today"):
        provider.reset(VM)
    provider.stop(VM)
    assert traces(home) == []


@pytest.mark.slow
def test_a_hypervisor_that_hangs_is_given_up_by_name(home: Path) -> None:
    provider = make("vmware", path_to_vm=vm(home, "vmware"), boot_seconds=2)
    (home / "hang-start").touch()
    with pytest.raises(KeeperFailed, match=f"{VM}: vmware: start took more than 2 s; it last said: Starting VM"):
        provider.boot(VM)
    (home / "hang-start").unlink()
    provider.stop(VM)
    assert traces(home) == []


@pytest.mark.slow
def test_a_vm_whose_address_never_comes_is_given_up(home: Path) -> None:
    provider = make("virtualbox", path_to_vm=vm(home, "virtualbox"), boot_seconds=8)
    (home / "fail-guestproperty").touch()
    with pytest.raises(KeeperFailed, match=r"virtualbox: start took more than 8 s; it last said: .*"):
        provider.boot(VM)
    provider.stop(VM)
    assert traces(home) == []


def test_a_boot_ends_when_its_vm_is_stopped(home: Path) -> None:
    provider = make("vmware", path_to_vm=vm(home, "vmware"))
    (home / "hang-revertToSnapshot").touch()
    raised: list[Exception] = []

    def boot() -> None:
        try:
            provider.boot(VM)
        except KeeperFailed as error:
            raised.append(error)

    thread = threading.Thread(target=boot)
    thread.start()
    wait_until(lambda: any("revertToSnapshot" in line for line in processes_naming("revertToSnapshot")))
    (home / "hang-revertToSnapshot").unlink()
    provider.stop(VM)
    thread.join(30)
    assert len(raised) == 1
    assert traces(home) == []


@contextmanager
def it_does_not_end_in_time(keeper: KeeperClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However fast the kernel is: the lock makes `Popen.wait` believe that another thread is about to see the process end."""
    lock = keeper._process._waitpid_lock  # type: ignore[attr-defined]
    with monkeypatch.context() as hasty, lock, pytest.raises(subprocess.TimeoutExpired):
        hasty.setattr(keeper_client, "END_SECONDS", 0.0)
        yield


@pytest.mark.slow
def test_a_busy_keeper_that_does_not_end_in_time_does_not_keep_its_vm(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = make("vmware", path_to_vm=vm(home, "vmware"))
    provider.boot(VM)
    (home / "hang-revertToSnapshot").touch()
    with ThreadPoolExecutor() as threads:
        revert = threads.submit(provider.reset, VM)
        wait_until(lambda: processes_naming("revertToSnapshot") != [])
        with it_does_not_end_in_time(provider._keepers[VM], monkeypatch):  # type: ignore[attr-defined]
            provider.stop(VM)
        (home / "hang-revertToSnapshot").unlink()
        assert isinstance(revert.exception(30), KeeperFailed)

    provider.stop(VM)

    assert traces(home) == []


def test_so_does_none_that_holds_no_vm_any_more(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = DesktopEnvOptions()
    first = KeeperClient("vmware", VM, options)
    with it_does_not_end_in_time(first, monkeypatch):
        first.close()

    second = KeeperClient("vmware", VM, options)

    for keeper in (first, second):
        keeper.kill()
        keeper.close()


def test_a_keeper_is_heard_where_many_files_are_open(home: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2048), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        check_available(make("vmware"))
    finally:
        for one in opened:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_keeper_that_ends_takes_no_lock_from_its_successor(home: Path) -> None:
    first = KeeperClient("vmware", VM, DesktopEnvOptions())
    lock_of("vmware", VM).unlink()  # as its keeper does once the VM is stopped
    second = KeeperClient("vmware", VM, DesktopEnvOptions())
    first.kill()
    first.close()
    assert is_held(lock_of("vmware", VM))

    second.kill()
    second.close()
    assert not lock_of("vmware", VM).exists()


def test_a_look_at_a_vm_whose_keeper_is_ending_it_leaves_no_lock(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    note("vmware", "own-0", "Ubuntu.vmx", machine=socket.gethostname())
    command = [sys.executable, "-c", "input()", PROGRAM, str(record_of("vmware", "own-0"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as keeper:
        wait_until(Path(f"/proc/{keeper.pid}/cmdline").read_bytes)  # empty while the process is just being made
        assert end_abandoned("vmware", ["own-0"], 1.0) == []
        keeper.kill()
    assert not lock_of("vmware", "own-0").exists()
    assert caplog.messages == [], "it tried to stop it"


@pytest.mark.parametrize(
    "kind",
    [
        "vmware",
        "aws",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("docker", "azure", "aliyun", "volcengine")),
    ],
)
def test_a_keeper_has_the_keys_of_its_cloud_and_none_of_this_project(
    home: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = (
        *("OPENAI_API_KEY", "SCRIPTED_MODEL_API_KEY", "ROLLOUT_GATE_KEY"),
        *("REDIS_URL", "ROLLOUT_REDIS_URL", "CELERY_BROKER_URL"),
    )
    of_clouds = {
        "AWS_SECRET_ACCESS_KEY": "1",
        "AZURE_CLIENT_SECRET": "2",
        "ALIYUN_ACCESS_KEY_SECRET": "3",
        "VOLCENGINE_SECRET_ACCESS_KEY": "4",
    }
    for name in ours:
        monkeypatch.setenv(name, "a secret")
    for name, key in of_clouds.items():
        monkeypatch.setenv(name, key)

    keeper = KeeperClient(kind, VM, DesktopEnvOptions())
    try:
        environment = Path(f"/proc/{keeper._process.pid}/environ")
        wait_until(environment.read_text)  # empty while the process is just being made
        words = environment.read_text().split("\0")
    finally:
        keeper.kill()
        keeper.close()

    seen = dict(word.partition("=")[::2] for word in words)
    assert seen.keys() & set(ours) == set()
    assert "a secret" not in seen.values()
    assert seen.items() >= of_clouds.items()


@pytest.mark.slow
def test_two_vms_never_share_a_path(home: Path) -> None:
    paths = [vm(home, "vmware", number) for number in (0, 1)]
    provider = make("vmware", path_to_vm=paths)
    endpoints = [provider.boot(f"{HOST}-{number}") for number in (0, 1)]
    assert len({endpoint.address for endpoint in endpoints}) == 2
    with pytest.raises(KeeperFailed, match="the 2 VMs that path_to_vm names are in use already"):
        provider.boot(f"{HOST}-2")
    for number in range(3):
        provider.stop(f"{HOST}-{number}")
    assert traces(home) == []


@pytest.mark.slow
def test_what_an_abandoned_record_names_is_left_to_who_uses_it_by_now(home: Path) -> None:
    path = vm(home, "vmware")
    provider = make("vmware", path_to_vm=path)
    endpoint = provider.boot(VM)
    known = json.loads(record_of("vmware", VM).read_text())
    note("vmware", "own-0", **{**known, "vm_id": "own-0"})
    (state_folder("vmware") / ".vmware_vms").write_text(f"{path}|free\n")

    assert make("vmware").reap_leftovers(f"{HOST}-another") == ["own-0"]
    with pytest.raises(KeeperFailed, match=f"{path} is in use already"):
        make("vmware").boot(f"{HOST}-1")

    assert on_disk(endpoint) == "clean"
    provider.check(VM)
    provider.stop(VM)
    assert [line for line in processes_naming(str(home)) if "guest" in line] == []


def test_what_another_host_is_just_clearing_up_keeps_none_from_starting(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lock, "LET_GO_SECONDS", 0.2)
    provider = make("vmware", path_to_vm=vm(home, "vmware"))
    note(
        "vmware",
        VM,
        str(home / "Ubuntu0" / "Ubuntu0.vmx"),
        vm_id=VM,
        provider="vmware",
        machine=socket.gethostname(),
        region=None,
        paths=[],
        snapshot_name="init_state",
        headless=True,
        os_type="Ubuntu",
        screen=[1, 1],
        stop_seconds=30,
    )
    (home / "hang-stop").touch()
    command = [sys.executable, "-c", REAPER, f"{HOST}-another"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()) as other,
        ThreadPoolExecutor() as threads,
    ):
        wait_until(lambda: any("vmrun" in line for line in processes_naming("Ubuntu0.vmx")))
        reaped = threads.submit(provider.reap_leftovers, HOST)
        unpooled = threads.submit(make("vmware").reap_leftovers, f"{HOST}-a-run")
        assert unpooled.result(10) == []
        wait([reaped], timeout=0.5)
        (home / "hang-stop").unlink()
        assert reaped.result(30) == []
        assert other.communicate()[0] == f"['{VM}']\n"
    assert traces(home) == []


@pytest.fixture
def passing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files that does not outlast the process that has it, as a worker's."""
    folder = tmp_path / "passing"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def owner(home: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, object]]]:
    options: dict[str, object] = {"path_to_vm": vm(home, "vmware"), "headless": True, "stop_seconds": 30}
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, "vmware", json.dumps(options), VM], stdout=subprocess.PIPE, cwd=Path.cwd()
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"up\n"
    try:
        yield owner, options
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()


def test_a_killed_owner_leaves_nothing(home: Path, owner: tuple[subprocess.Popen[bytes], dict[str, object]]) -> None:
    owner[0].kill()
    wait_until(lambda: traces(home) == [])


def test_nor_does_one_whose_temporary_folder_is_removed_first(
    home: Path, passing: Path, owner: tuple[subprocess.Popen[bytes], dict[str, object]]
) -> None:
    shutil.rmtree(passing)
    owner[0].kill()
    wait_until(lambda: traces(home) == [], seconds=20)


def test_the_vms_of_a_living_process_are_not_reaped(
    home: Path, owner: tuple[subprocess.Popen[bytes], dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, options = owner
    monkeypatch.setattr(folder_lock, "LET_GO_SECONDS", 0.5)
    before = processes_naming(str(home))
    provider = make("vmware", **options)
    for act in (lambda: provider.reap_leftovers(HOST), lambda: provider.boot(VM), lambda: provider.stop(VM)):
        with pytest.raises(VMsInUse, match=f"process {process.pid} of this machine uses {VM}: stop that one, or"):
            act()
    assert processes_naming(str(home)) == before

    process.kill()
    process.wait()
    wait_until(lambda: traces(home) == [])


ACCOUNT = "<GetCallerIdentityResult><Account>111</Account></GetCallerIdentityResult>"


class Cloud(http.server.BaseHTTPRequestHandler):
    """Answers as EC2 and STS for account 111: it has no instance that is to be terminated, and one is another's."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if "Action=GetCallerIdentity" in asked:
            self.answer(200, f"<GetCallerIdentityResponse>{ACCOUNT}</GetCallerIdentityResponse>")
            return
        region = self.headers["Authorization"].split("/")[2]
        self.asked.append(f"{region} {asked}")
        code = "UnauthorizedOperation" if "i-others" in asked else "InvalidInstanceID.NotFound"
        error = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
        reply = f"<Response><Errors>{error}</Errors><RequestID>1</RequestID></Response>"
        self.answer(403 if "Unauthorized" in code else 400, reply)

    def answer(self, status: int, reply: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def cloud(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Cloud]]:
    monkeypatch.setattr(Cloud, "asked", [])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cloud) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_SUBNET_ID": "subnet",
            "AWS_SECURITY_GROUP_ID": "group",
        }.items():
            monkeypatch.setenv(name, value)
        yield Cloud
        server.shutdown()


def note(kind: str, name: str, path: str, **known: Any) -> None:
    """What a keeper that was killed wrote down."""
    record = record_of(kind, name)
    for folder in (record.parent, lock_of(kind, name).parent):
        folder.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({"path": path, **known}))


@pytest.mark.slow
@pytest.mark.parametrize("by", [HOST, f"{HOST}-another"], ids=["its next start", "another host"])
def test_what_is_left_when_everything_was_killed_is_reaped(
    home: Path, owner: tuple[subprocess.Popen[bytes], dict[str, object]], by: str
) -> None:
    process, _ = owner
    assert json.loads(record_of("vmware", VM).read_text())["account"] == ""
    [keeper] = processes_naming(f"{VM}.json")
    os.kill(int(keeper.split()[0]), signal.SIGKILL)
    assert make("vmware").reap_leftovers(f"{HOST}-another") == [], "its process may still end it"
    process.kill()
    process.wait()
    assert processes_naming(str(home)) != []
    provider = make("vmware", path_to_vm=vm(home, "vmware", 1))
    assert provider.reap_leftovers(by) == [VM]
    assert traces(home) == []
    assert provider.reap_leftovers(by) == []


def test_abandoned_instances_are_ended_unless_they_are_another_machines(
    cloud: type[Cloud], caplog: pytest.LogCaptureFixture
) -> None:
    here: dict[str, object] = {
        "machine": socket.gethostname(),
        "paths": [],
        "snapshot_name": "init_state",
        "headless": True,
    }
    here |= {"os_type": "Ubuntu", "screen": [1920, 1080], "stop_seconds": 30, "provider": "aws", "region": "ap-east-1"}
    note("aws", "own-0", "i-gone", vm_id="own-0", account="111", **here)
    note("aws", "own-1", "i-others", vm_id="own-1", account="111", **here)
    note("aws", "own-2", "i-far", vm_id="own-2", account="111", **{**here, "machine": "another"})
    note("aws", "own-3", "i-hidden", vm_id="own-3", account="222", **here)
    note("aws", "own-4", "i-unknown", vm_id="own-4", **here)

    assert make("aws").reap_leftovers(f"{HOST}-another") == ["own-0"]

    assert [line.partition(" ")[0] for line in cloud.asked] == ["ap-east-1"] * 4
    assert "own-1 that nobody uses any more stays: " in caplog.text
    assert "UnauthorizedOperation" in caplog.text
    for name, instance in {"own-3": "i-hidden", "own-4": "i-unknown"}.items():
        assert f"{instance} may be another account's or region's: end it there, then delete " in caplog.text
        assert str(record_of("aws", name)) in caplog.text
    assert [record_of("aws", f"own-{number}").exists() for number in range(5)] == [False, True, True, True, True]


def test_instances_that_cannot_be_ended_keep_no_host_from_starting(
    cloud: type[Cloud], caplog: pytest.LogCaptureFixture
) -> None:
    note("aws", VM, "i-others", region="us-east-1")
    note("aws", f"{HOST}-1", "i-gone", region="ap-east-1")
    note("aws", f"{HOST}-2", "i-hidden", region="ap-east-1", account="222")
    provider = make("aws")

    assert provider.reap_leftovers(HOST) == [f"{HOST}-1"]

    assert {line.partition(" ")[0] for line in cloud.asked} == {"us-east-1", "ap-east-1"}  # a busy one is asked again
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "i-hidden may be another account's or region's" in caplog.text
    assert f"{VM} of an earlier process stays: {VM}: aws: stop: An error occurred (Unauthorized" in caplog.text
    assert record_of("aws", VM).exists()


def test_a_vm_that_virtualbox_has_no_more_leaves_no_record_for_ever(home: Path) -> None:
    vm(home, "virtualbox")
    known: dict[str, object] = {"region": None, "machine": socket.gethostname(), "account": "", "stop_seconds": 30}
    known |= {"paths": [], "snapshot_name": "init_state", "headless": True, "os_type": "Ubuntu", "screen": [1920, 1080]}
    for number, path in enumerate(["Ubuntu1", str(home / "Ubuntu1" / "Ubuntu1.vbox")]):
        note("virtualbox", f"own-{number}", path, vm_id=f"own-{number}", provider="virtualbox", **known)

    assert make("virtualbox").reap_leftovers(HOST) == ["own-0", "own-1"]


@pytest.mark.slow
def test_what_desktop_env_writes_down_is_kept_out_of_the_way(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    provider = make("vmware")  # no path: its registry of VMs is asked
    (registry := state_folder("vmware") / ".vmware_vms").parent.mkdir(parents=True)
    registry.write_text(f"{vm(home, 'vmware')}|free\n")
    endpoint = provider.boot(VM)
    assert on_disk(endpoint) == "clean"
    provider.stop(VM)
    assert list(here.iterdir()) == []
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert traces(home) == []


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("vmware", {}, "provider 'vmware' needs the command vmrun, which comes with VMware Workstation or Fusion"),
        ("virtualbox", {}, "provider 'virtualbox' needs the command VBoxManage, which comes with VirtualBox"),
        (
            "docker",
            {},
            "provider 'docker' cannot be used here: .*server API version.*; Docker must be installed and running",
        ),
        ("aws", {}, "provider 'aws' cannot be used here: AWS_REGION must be set in the environment variables"),
        ("aws", {"path_to_vm": "i-0123"}, "provider 'aws' deletes its instances .*: leave path_to_vm out"),
        ("azure", {}, "provider 'azure' finds no VM by itself: name one with path_to_vm"),
        ("aliyun", {}, "provider 'aliyun' cannot be used here: ALIYUN_REGION must be set"),
        (
            "volcengine",
            {},
            "provider 'volcengine' needs a package that is not installed: pip install volcengine-python-sdk",
        ),
        ("gcp", {}, "provider 'gcp' is a name in desktop-env with nothing behind it"),
        ("vmware", {"colour": "red"}, "does not accept its options: colour: Extra inputs are not permitted"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(
    kind: str, options: dict[str, object], sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    with pytest.raises(ProviderError, match=sentence):
        check_available(load_provider(kind, options))
