"""A machine without desktops rolls out on those of a service, through the service's one port: real desktops, behind real gates."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from benchmark.report import read_report
from rollout_tasks.service_client import DesktopClient
from tests.acceptance.commands import rollouts
from tests.acceptance.vnc_client import VNCClient
from tests.conftest import REPOSITORY, free_port
from tests.desktops import needs_local_desktops, traces
from tests.integration.service.view_browser import Browser
from tests.virtual_machines import wait_until
from vm_pool.providers.remote.options import TOKEN_VARIABLE

pytest.importorskip("websockets")
pytestmark = [pytest.mark.slow, needs_local_desktops, pytest.mark.timeout(600)]

OPERATOR = "operator-0123456789abcdef"
LENDER = ("--provider-name", "local", "--provider-option", "profile=core", "--num-vms", "2", "--num-rollouts", "4")


def test_examples_score_as_on_desktops_of_ones_own(tmp_path: Path) -> None:
    with lending(tmp_path) as url:
        options = ["--data-path", str(REPOSITORY / "examples" / "desktop"), "--limit", "4", "--provider", "remote"]
        options += ["--provider-option", f"url={url}", "--provider-option", "through_service=true"]
        options += ["--num-vms", "2", "--num-rollouts", "2", "--run-id", "lent"]
        done = rollouts(tmp_path, "run", *options, **{TOKEN_VARIABLE: OPERATOR})
        assert done.returncode == 0, done.stderr
        report = read_report(tmp_path / "results" / "lent" / "evaluation.json")
        assert [row["score"] for row in report["evaluation_results"]] == [1.0] * 4
        with httpx.Client(headers={"Authorization": f"Bearer {OPERATOR}"}) as client:
            assert client.get(f"{url}/emulators").json() == [], "each was given back"


def test_what_a_killed_service_had_started_ends_and_it_can_be_started_again(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    (tmp_path / "lender").mkdir()
    lender = started(tmp_path, url)
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {OPERATOR}"}, timeout=120) as client:
        before = client.post("/start_emulator").json()["data"]
        below = psutil.Process(lender.pid).children(recursive=True)
        vm_id = client.get(f"/emulator_status/{before['emulator_id']}").json()["container_id"]
        assert traces(vm_id)
        lender.kill()
        lender.wait()
        wait_until(lambda: not any(process.is_running() for process in below))
        wait_until(lambda: not traces(vm_id.rpartition("-")[0] + "-"))
        lender = started(tmp_path, url)
        try:
            assert client.get(f"/emulator_status/{before['emulator_id']}").status_code == 404
            after = client.post("/start_emulator").json()
            emulator_id = after["data"]["emulator_id"]
            assert client.delete(f"/emulators/{emulator_id}").status_code == 200
            kept = {file["name"] for file in client.get(f"/leases/{emulator_id}/record").json()["files"]}
            assert "session.json" in kept
            assert "recording.mp4" not in kept, "the recording is its client's"
        finally:
            ended(lender, tmp_path)
    assert not traces(vm_id.rpartition("-")[0] + "-")


def test_looking_at_a_desktop_changes_nothing_and_helping_does(tmp_path: Path) -> None:
    (tmp_path / "share" / "novnc" / "core").mkdir(parents=True)
    (tmp_path / "share" / "novnc" / "core" / "rfb.js").touch()  # the client of this test is another one
    with (
        lending(tmp_path, "--allow-help", XDG_DATA_DIRS=str(tmp_path / "share")) as url,
        DesktopClient(url, OPERATOR) as client,
        client.lease() as lease,
    ):
        looking, helping = (opened(url, lease.view(may_help=may_help)) for may_help in (False, True))
        with VNCClient(looking) as viewer:
            before = viewer.settled()
            viewer.right_click()
            assert viewer.settled() == before
            assert client.leases()[0].helped is False
            with VNCClient(helping) as helper:
                helper.right_click()
                wait_until(lambda: viewer.screen() != before, seconds=60)  # who looks sees it, too
            assert client.leases()[0].helped is True


def opened(url: str, address: str) -> Browser:
    browser = Browser(url, address.removeprefix(url))
    assert browser.hand_in().status_code == 204
    return browser


@contextmanager
def lending(folder: Path, *options: str, **variables: str) -> Iterator[str]:
    """A service that lends two desktops of its own; yields its address."""
    url = f"http://127.0.0.1:{free_port()}"
    (folder / "lender").mkdir()
    lender = started(folder, url, *options, **variables)
    try:
        yield url
    finally:
        ended(lender, folder)


def started(folder: Path, url: str, *options: str, **variables: str) -> subprocess.Popen[bytes]:
    """The service in its simple form, with a Valkey and a VM host of its own."""
    command = [sys.executable, "-m", "rollout_tasks.cli.main", "desktops", "serve", "--port", url.rpartition(":")[2]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("REDIS_", "ROLLOUT_"))}
    environment |= {"PYTHONPATH": str(REPOSITORY), "ROLLOUT_SERVICE_TOKENS": f"boss:{OPERATOR}", **variables}
    with (folder / "log").open("ab") as log:
        lender = subprocess.Popen([*command, *LENDER, *options], cwd=folder / "lender", env=environment, stderr=log)
    wait_until(lambda: answers(url), seconds=120)
    return lender


def ended(lender: subprocess.Popen[bytes], folder: Path) -> None:
    """Ends it as a supervisor does."""
    lender.send_signal(signal.SIGTERM)
    assert lender.wait(120) == 0, (folder / "log").read_text(encoding="utf-8")


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.HTTPError:
        return False
