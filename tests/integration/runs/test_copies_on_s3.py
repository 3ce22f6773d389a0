"""Copies on a server that speaks S3: there and back, killed in the middle, and while the server is away.

It needs `uv pip install 'moto[server]' s3fs`; the server is on this machine alone and keeps its objects in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.runs import ending
from rollout_tasks.runs.copies.manifest import parsed, unit_of
from rollout_tasks.runs.folder import RunFolder
from tests.conftest import REPOSITORY, free_port
from tests.unit.training.ended_rollouts import end, run_of

moto = pytest.importorskip("moto.server")
boto3 = pytest.importorskip("boto3")
pytest.importorskip("s3fs")

pytestmark = pytest.mark.slow
BUCKET, PREFIX = "bucket", "runs/night-1/"
URL = f"s3://{BUCKET}/{PREFIX.rstrip('/')}"
KEYS = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "not-to-be-seen", "AWS_DEFAULT_REGION": "us-east-1"}


class Server:
    """The server; its objects outlive a stop, as they are in this process."""

    def __init__(self) -> None:
        self.port = free_port()
        self.start()
        address = f"http://127.0.0.1:{self.port}"
        self.environment = {**os.environ, **KEYS, "FSSPEC_S3_ENDPOINT_URL": address, "PYTHONPATH": str(REPOSITORY)}
        self.client = boto3.client(
            "s3",
            endpoint_url=address,
            aws_access_key_id="nobody",
            aws_secret_access_key="x",
            region_name="us-east-1",
        )

    def start(self) -> None:
        self._server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def objects(self) -> dict[str, bytes]:
        """Each object of the copy, by its name in it."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=PREFIX)
        names = [about["Key"] for page in pages for about in page.get("Contents", [])]
        return {
            name.removeprefix(PREFIX): self.client.get_object(Bucket=BUCKET, Key=name)["Body"].read() for name in names
        }

    def files(self) -> dict[str, bytes]:
        return {name: content for name, content in self.objects().items() if not name.startswith(".copied/")}


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    server.client.create_bucket(Bucket=BUCKET)
    yield server
    with_objects = server.client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
    for about in with_objects:
        server.client.delete_object(Bucket=BUCKET, Key=about["Key"])
    server.client.delete_bucket(Bucket=BUCKET)
    server.stop()


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = run_of(tmp_path / "results/night-1", ["a", "b", "c"], rollouts_per_item=2)
    for name in ("a#0", "a#1", "b#0"):
        end(run, name, 1.0)
    return run


def over(run: RunFolder) -> None:
    for name in ("b#1", "c#0", "c#1"):
        end(run, name, 1.0)
    ending.record_end(run)


def begun(server: Server, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rollout_tasks.cli.main", "copy", *arguments],
        cwd=folder,
        env=server.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def copied(server: Server, folder: Path, *arguments: str) -> Any:
    process = begun(server, folder, *arguments, "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out)


def local(run: RunFolder) -> dict[str, bytes]:
    paths = [path for path in run.path.rglob("*") if path.is_file()]
    return {path.relative_to(run.path).as_posix(): path.read_bytes() for path in paths}


def promises_are_kept(objects: dict[str, bytes]) -> bool:
    """Whether each complete unit has what its manifest says."""
    for name, content in objects.items():
        manifest = parsed(unit, content) if (unit := unit_of(name)) else None
        if manifest is not None and manifest.complete:
            for file, facts in manifest.known.items():
                if hashlib.sha256(objects.get(file, b"")).hexdigest() != facts.sha256:
                    return False
    return True


def wait_for(condition: Any, process: subprocess.Popen[str], seconds: float = 100) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_there_and_back(server: Server, run: RunFolder, tmp_path: Path) -> None:
    over(run)
    (run.attempt("a#0", 1) / "recording.mp4").write_bytes(os.urandom(1 << 20) * 60)  # sent in several parts
    (run.attempt("a#0", 1) / "empty.txt").write_bytes(b"")

    first = copied(server, tmp_path, "night-1", URL)

    assert server.files() == local(run)
    assert first["copied"] == 6
    again = copied(server, tmp_path, "night-1", URL)
    assert (again["files_sent"], again["files_kept"]) == (0, first["files_sent"])
    copied(server, tmp_path, URL, "back")
    assert {**local(RunFolder(tmp_path / "back"))} == {**local(run), ".fetched": b""}


def test_killed_and_begun_again(server: Server, run: RunFolder, tmp_path: Path) -> None:
    over(run)
    for count in (4, 20):
        process = begun(server, tmp_path, "night-1", URL)
        wait_for(lambda least=count: len(server.objects()) >= least, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert promises_are_kept(server.objects())

    copied(server, tmp_path, "night-1", URL)

    assert server.files() == local(run)
    assert promises_are_kept(server.objects())


def test_a_run_is_followed_while_the_server_is_away_for_a_while(server: Server, run: RunFolder, tmp_path: Path) -> None:
    with (tmp_path / "said").open("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "rollout_tasks.cli.main", "copy", "night-1", URL, "--follow"],
            cwd=tmp_path,
            env=server.environment,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
        wait_for(lambda: ".copied/rollouts/b/0.json" in server.objects(), process)
        server.stop()
        over(run)
        wait_for(lambda: f"waits for {URL}: cannot write" in (tmp_path / "said").read_text(), process)
        server.start()

        out, _ = process.communicate(timeout=120)

    assert process.returncode == 0, (tmp_path / "said").read_text()
    assert f"6 of 6 rollouts are at {URL}" in out
    assert server.files() == local(run)
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in (tmp_path / "said").read_text()


def test_a_server_that_stays_away(server: Server, run: RunFolder, tmp_path: Path) -> None:
    server.stop()
    try:
        process = begun(server, tmp_path, "night-1", URL, "--retry-seconds", "3")
        _, err = process.communicate(timeout=120)
    finally:
        server.start()

    assert process.returncode == 2
    assert err.splitlines()[-1].startswith(f"error: {URL}: cannot list what is there, tried for ")
    assert "Traceback" not in err


def test_a_bucket_that_is_not_there(server: Server, run: RunFolder, tmp_path: Path) -> None:
    process = begun(server, tmp_path, "night-1", "s3://nobodys/run")
    _, err = process.communicate(timeout=120)

    assert process.returncode == 2
    assert "error: s3://nobodys/run: cannot write" in err
    assert "bucket does not exist" in err
