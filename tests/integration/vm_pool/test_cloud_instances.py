"""No instance of a cloud outlasts whoever wanted it, though it is known by name only once it is made.

The cloud is a folder with a file for each instance; desktop-env's package is one that makes such files.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.paths import paths_below
from tests.virtual_machines import processes_naming, wait_until
from vm_pool.providers.base import Provider, load_provider
from vm_pool.providers.desktop_env import keeper_client
from vm_pool.providers.desktop_env.keeper_client import KeeperClient, KeeperFailed, environment_of_keepers
from vm_pool.providers.desktop_env.keeper_files import record_of, state_folder
from vm_pool.providers.desktop_env.options import DesktopEnvOptions

pytest.importorskip("botocore")

HOST = f"test-cloud-{os.getpid()}"
VM, OTHER_VM = f"{HOST}-0", f"{HOST}-1"

CLOUD = """
import os, time, uuid
from pathlib import Path
cloud = Path(os.environ["FAKE_CLOUD"])

def make(step):
    instance = f"i-{uuid.uuid4().hex[:8]}"
    (cloud / "instances" / instance).touch()
    with (cloud / "made").open("a") as made:
        made.write(f"{step}\\n")
    while not (cloud / f"may-{step}").exists():
        time.sleep(0.02)
    return instance
"""
MANAGER = """
from desktop_env.cloud import make

class AWSVMManager:
    def get_vm_path(self, **_options):
        return make("find")
"""
PROVIDER = """
from desktop_env.cloud import cloud, make

class AWSProvider:
    def __init__(self, region): pass
    def get_ip_address(self, path): return "127.0.0.1"

    def start_emulator(self, *_arguments):
        if (cloud / "refuses-new").exists() and "revert" in (cloud / "made").read_text():
            raise RuntimeError("too many requests")

    def stop_emulator(self, path):
        (cloud / "instances" / path).unlink(missing_ok=True)

    def revert_to_snapshot(self, path, snapshot):
        self.stop_emulator(path)
        return make("revert")

class boto3:
    def client(*_arguments, **_options):
        raise RuntimeError("it has no accounts")
"""
OWNER = """
import json, sys, threading, time
from vm_pool.providers.base import load_provider
provider = load_provider("aws", json.loads(sys.argv[1]))
for vm_id in sys.argv[2:]:
    threading.Thread(target=provider.boot, args=(vm_id,), daemon=True).start()
time.sleep(1000)
"""


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The cloud's folder: an instance is ready once the file ``may-find`` or ``may-revert`` is there."""
    cloud, packages = tmp_path / "cloud", tmp_path / "packages" / "desktop_env"
    (cloud / "instances").mkdir(parents=True)
    (packages / "providers" / "aws").mkdir(parents=True)
    for package in (packages, packages / "providers", packages / "providers" / "aws"):
        (package / "__init__.py").touch()
    (packages / "cloud.py").write_text(CLOUD)
    (packages / "providers" / "aws" / "manager.py").write_text(MANAGER)
    (packages / "providers" / "aws" / "provider.py").write_text(PROVIDER)
    monkeypatch.setenv("PYTHONPATH", str(packages.parent))
    monkeypatch.setenv("FAKE_CLOUD", str(cloud))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(keeper_client, "END_SECONDS", 0.5)
    yield cloud
    for line in keepers(cloud):
        with suppress(ProcessLookupError):
            os.kill(int(line.split()[0]), signal.SIGKILL)


def make(**options: object) -> Provider:
    return load_provider("aws", {"region": "us-east-1", **options})


def instances(cloud: Path) -> list[str]:
    return [path.name for path in (cloud / "instances").iterdir()]


def made(cloud: Path) -> list[str]:
    """The steps that have made an instance."""
    return (cloud / "made").read_text().split() if (cloud / "made").exists() else []


def keepers(cloud: Path) -> list[str]:
    return processes_naming(str(cloud.parent / "cache"))


def traces(cloud: Path) -> list[str]:
    return [str(path) for path in paths_below(cloud.parent / "cache", f"{HOST}*")] + keepers(cloud)


def own(*vm_ids: str, **options: object) -> subprocess.Popen[bytes]:
    """A process that boots VMs."""
    settings = json.dumps({"region": "us-east-1", **options})
    return subprocess.Popen([sys.executable, "-c", OWNER, settings, *vm_ids], cwd=Path.cwd())


def test_one_that_is_being_made_when_its_owner_is_killed_is_ended_and_no_other_is_made(cloud: Path) -> None:
    with own(VM, OTHER_VM, stop_seconds=0.5) as owner:
        wait_until(lambda: made(cloud) == ["find"] and len(keepers(cloud)) == 2)
        owner.kill()
    wait_until(lambda: len(keepers(cloud)) < 2)  # the one that waited gave up, so as long has the other been alone
    (cloud / "may-find").touch()
    wait_until(lambda: traces(cloud) == [])
    assert (instances(cloud), made(cloud)) == ([], ["find"])


def test_so_is_one_that_takes_the_place_of_another(cloud: Path) -> None:
    (cloud / "may-find").touch()
    with own(VM, snapshot_name="ami-1", stop_seconds=2) as owner:
        wait_until(lambda: made(cloud) == ["find", "revert"])
        owner.kill()
    with pytest.raises(KeeperFailed, match=f"{VM}: aws: an earlier keeper still makes or stops its VM"):
        make(stop_seconds=3).stop(VM)  # longer than the keeper would wait if it made nothing
    (cloud / "may-revert").touch()
    wait_until(lambda: traces(cloud) == [])
    assert instances(cloud) == []


def test_one_that_has_taken_the_place_of_another_but_does_not_start_is_ended(cloud: Path) -> None:
    for file in ("may-find", "may-revert", "refuses-new"):
        (cloud / file).touch()
    provider = make(snapshot_name="ami-1")
    with pytest.raises(KeeperFailed, match="start: too many requests"):
        provider.boot(VM)
    assert len(instances(cloud)) == 1
    provider.stop(VM)
    assert instances(cloud) == []


def test_none_is_made_once_nobody_wants_it(cloud: Path) -> None:
    (cloud / "may-find").touch()
    client = KeeperClient("aws", VM, DesktopEnvOptions())
    script = (
        "import sys; from pathlib import Path; from vm_pool.providers.desktop_env.keeper import Keeper;"
        "keeper = Keeper(Path(sys.argv[1])); keeper.make_no_more(); keeper.answer('find')"
    )
    command = [sys.executable, "-c", script, str(record_of("aws", VM))]
    done = subprocess.run(
        command, env=environment_of_keepers(), cwd=state_folder("aws"), capture_output=True, text=True
    )
    assert "no VM is made any more: the keeper is to end" in done.stderr
    assert made(cloud) == []
    client.close()
    wait_until(lambda: traces(cloud) == [], seconds=30)


def test_one_that_is_being_made_when_it_is_to_be_stopped_is_ended_afterwards(cloud: Path) -> None:
    provider = make(stop_seconds=0.5)
    with ThreadPoolExecutor() as threads:
        boot = threads.submit(provider.boot, VM)
        wait_until(lambda: made(cloud) == ["find"])
        for _ in range(2):
            with pytest.raises(KeeperFailed, match="still makes or stops its VM"):
                provider.stop(VM)
        assert isinstance(boot.exception(30), KeeperFailed)
        assert record_of("aws", VM).exists()

        later = threads.submit(make().reap_leftovers, HOST)
        (cloud / "may-find").touch()
        assert later.result(30) in ([VM], [])  # none where the keeper has ended it by itself before it is looked for

    wait_until(lambda: traces(cloud) == [])  # and may only just have
    assert instances(cloud) == []


def test_one_that_is_made_too_slowly_is_ended_once_it_is_made(cloud: Path) -> None:
    provider = make(find_seconds=2)
    with pytest.raises(KeeperFailed, match="find took more than 2 s"):
        provider.boot(VM)
    (cloud / "may-find").touch()
    provider.stop(VM)
    wait_until(lambda: traces(cloud) == [])  # the keeper may have deleted its record, and be about to end
    assert instances(cloud) == []


def test_a_keeper_that_can_start_no_other_in_its_place_ends_all_the_same(cloud: Path) -> None:
    keeper = KeeperClient("aws", VM, DesktopEnvOptions(find_seconds=0.1, stop_seconds=0.1))
    with ThreadPoolExecutor() as threads:
        find = threads.submit(keeper.ask, "find", 60)
        wait_until(lambda: made(cloud) == ["find"])
        resource.prlimit(keeper._process.pid, resource.RLIMIT_NOFILE, (1, 1))
        keeper.let_go()
        assert isinstance(find.exception(30), KeeperFailed)
    wait_until(lambda: keepers(cloud) == [], seconds=20)
    assert record_of("aws", VM).exists()
    keeper.close()
