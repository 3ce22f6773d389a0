"""Redis over TLS: everything that connects to it requires its certificate, or what the URL says in its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis

from tests.conftest import REPOSITORY
from tests.tls_front import tls_front
from tests.unit.supply.package_index import Authority

CELERY = """
import asyncio, json, ssl
from flower.utils.broker import Broker
from rollout_tasks.app import app

def outcome(of):
    try:
        return of()
    except Exception as error:
        chain = [error]
        while cause := chain[-1].__cause__ or chain[-1].__context__:
            chain.append(cause)
        return next((type(one).__name__ for one in chain if isinstance(one, ssl.SSLError)), repr(error))

def broker():
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)
        with connection.SimpleQueue("some") as queue:
            queue.put({"id": 1})
            message = queue.get(timeout=5)
            message.ack()
            return message.payload["id"]

def flower():
    url = app.connection().as_uri(include_password=True)
    return asyncio.run(Broker(url, broker_use_ssl=app.conf.broker_use_ssl).queues(["some"]))[0]["messages"]

print(json.dumps([outcome(broker), outcome(lambda: int(app.backend.client.ping())), outcome(flower)]))
"""


@pytest.fixture
def server(redis_url: str, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """The test session's Valkey behind TLS, and the file of the authority that signed its certificate."""
    authority = Authority(tmp_path)
    login, _, place = redis_url.removeprefix("redis://").rpartition("@")
    port = int(place.partition(":")[2].partition("/")[0])
    with tls_front(port, authority.context("localhost")) as front:
        yield SimpleNamespace(url=f"rediss://{login}@localhost:{front}/0", authority=authority.file, plain=redis_url)


@pytest.fixture
def other_authority(tmp_path: Path) -> Path:
    """The file of an authority that has signed nothing."""
    folder = tmp_path / "other"
    folder.mkdir()
    return Authority(folder).file


def run(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)} | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("options", "trusts_all_system_files", "each"),
    [
        ("", True, 1),
        ("", False, "SSLCertVerificationError"),
        ("?ssl_ca_certs=AUTHORITY", False, 1),
        ("?ssl_ca_certs=OTHER", False, "SSLCertVerificationError"),
        ("?ssl_cert_reqs=none&ssl_check_hostname=false&ssl_ca_certs=OTHER", False, 1),
    ],
)
def test_broker_backend_and_flower_require_the_certificate_unless_the_url_says_otherwise(
    server: SimpleNamespace,
    other_authority: Path,
    tmp_path: Path,
    options: str,
    trusts_all_system_files: bool,
    each: object,
) -> None:
    options = options.replace("AUTHORITY", str(server.authority)).replace("OTHER", str(other_authority))
    trusted = {"SSL_CERT_FILE": str(server.authority)} if trusts_all_system_files else {}

    done = run(["-c", CELERY], tmp_path, REDIS_URL=server.url + options, **trusted)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [each, each, each if each != 1 else 0], done.stderr
    if "none" not in options:
        assert "insecure" not in done.stderr


def submit(folder: Path, url: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "items.jsonl").write_text(json.dumps({"id": "one", "question": "?"}))
    (folder / "run.yaml").write_text("{env_mode: simulated, simulated: {needs_vm: false}}")
    command = ["-m", "rollout_tasks.cli.main", "submit", "--config", "run.yaml", "--data-path", "items.jsonl"]
    return run([*command, "--run-id", "safe"], folder, REDIS_URL=url, **variables)


def test_a_run_is_submitted(server: SimpleNamespace, tmp_path: Path) -> None:
    done = submit(tmp_path, server.url, SSL_CERT_FILE=str(server.authority))

    assert done.returncode == 0, done.stderr
    with redis.Redis.from_url(server.plain, decode_responses=True) as client:
        assert client.llen("rollout.simulated") == 1
        assert client.hget("{run:safe}", "state") == "running"


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "rollout_tasks.cli.main", "status", "safe"],
        ["-m", "rollout_tasks.cli.main", "pool", "status"],
        ["-m", "rollout_tasks.cli.vm_host", "--num-vms=1", "--provider=simulated"],
        ["-m", "celery", "-A", "rollout_tasks", "worker", "--concurrency=1", "--queues=finalize"],
    ],
    ids=["status", "pool", "vm_host", "worker"],
)
def test_one_that_nobody_vouches_for_is_refused_in_one_sentence(
    server: SimpleNamespace, other_authority: Path, tmp_path: Path, command: list[str]
) -> None:
    done = run(command, tmp_path, REDIS_URL=f"{server.url}?ssl_ca_certs={other_authority}")

    here = server.url.rpartition("@")[2]
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: Redis at {here.removesuffix('/0')}"), done.stderr
    assert " is not trusted (unable to get local issuer certificate): " in last
    assert "Traceback" not in done.stderr
