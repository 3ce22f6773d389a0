"""Real PostgreSQL and MariaDB servers of a test's own: on a new folder and a port of loopback, with a password."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rollout_tasks.errors import UserError
from rollout_tasks.training.index.database import Database
from tests.conftest import free_port

KINDS = {"postgresql": "postgresql", "mariadb": "mariadb-server"}
"""The servers, and Debian's packages of them."""
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_OTHER_USER = "nobody"
"""Who runs PostgreSQL where the tests have root: it refuses to be root."""


def missing(kind: str) -> str:
    """Why a server cannot be started here; empty if it can."""
    return "" if _program(kind) else f"{kind} is not installed: apt-get install {KINDS[kind]}"


@contextmanager
def sql_server(kind: str, folder: Path, options: Sequence[str] = ()) -> Iterator[str]:
    """Runs a server while the block lasts.

    Args:
        kind: One of `KINDS`.
        folder: A new folder for its data.
        options: More options of the server.

    Yields:
        The address of an empty database, password included.
    """
    password, port = secrets.token_hex(8), free_port()
    if os.geteuid() == 0:
        shutil.chown(folder, _OTHER_USER)
        for above in folder.parents:  # pytest's are for the owner alone
            if above != Path("/") and above.stat().st_uid == 0 and above.name.startswith(("pytest-", "test_")):
                above.chmod(0o755)
    prepare = _prepare_postgresql if kind == "postgresql" else _prepare_mariadb
    command, url = prepare(folder, port, password)
    with (folder / "log").open("wb") as log, _as_other_user([*command, *options], folder, log) as process:
        try:
            _wait_for_answer(url, process, folder / "log")
            yield url
        finally:
            process.send_signal(signal.SIGINT if kind == "postgresql" else signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _prepare_postgresql(folder: Path, port: int, password: str) -> tuple[list[str], str]:
    server, data = _found("postgresql"), folder / "data"
    (folder / "password").write_text(password)
    (folder / "password").chmod(0o644)
    command = [server.with_name("initdb"), "--pgdata", data, "--username", "trainer", "--pwfile", folder / "password"]
    _run([*command, "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"], folder)
    options = ["-p", port, "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}"]
    return [
        str(word) for word in (server, "-D", data, *options)
    ], f"postgresql://trainer:{password}@127.0.0.1:{port}/postgres"


def _prepare_mariadb(folder: Path, port: int, password: str) -> tuple[list[str], str]:
    server, data = _found("mariadb"), folder / "data"
    base = server.parent.parent
    common = ["--no-defaults", f"--basedir={base}", f"--datadir={data}"]
    _run(
        [base / "bin" / "mariadb-install-db", *common, "--skip-test-db", "--auth-root-authentication-method=normal"],
        folder,
    )
    begin = folder / "begin.sql"
    begin.write_text(
        "CREATE DATABASE rollouts;\n"
        f"CREATE USER trainer@'127.0.0.1' IDENTIFIED BY '{password}';\n"
        "GRANT ALL ON rollouts.* TO trainer@'127.0.0.1';\n"
        f"ALTER USER root@localhost IDENTIFIED BY '{password}';\n"
    )
    begin.chmod(0o644)
    options = [f"--port={port}", "--bind-address=127.0.0.1", f"--socket={folder}/socket", f"--init-file={begin}"]
    more = [f"--pid-file={folder}/pid", "--skip-name-resolve"]
    return [
        str(word) for word in (server, *common, *options, *more)
    ], f"mysql://trainer:{password}@127.0.0.1:{port}/rollouts"


def _program(kind: str) -> Path | None:
    name = "postgres" if kind == "postgresql" else "mariadbd"
    places = [*os.environ["PATH"].split(os.pathsep), "/usr/sbin", *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
    found = shutil.which(name, path=os.pathsep.join(places))
    return Path(found).resolve() if found else None


def _found(kind: str) -> Path:
    found = _program(kind)
    assert found is not None, missing(kind)
    return found


def _run(command: Sequence[object], folder: Path) -> None:
    with (folder / "made").open("wb") as log, _as_other_user([str(word) for word in command], folder, log) as process:
        assert process.wait(_START_SECONDS) == 0, (folder / "made").read_text(errors="replace")


def _as_other_user(command: Sequence[str], folder: Path, log: object) -> subprocess.Popen[bytes]:
    who = {"user": _OTHER_USER, "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    return subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **who)  # type: ignore[call-overload]


def _wait_for_answer(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(UserError):
            Database(url)
            return
        time.sleep(0.2)
    raise AssertionError(f"the server does not answer: {log.read_text(errors='replace')[-2000:]}")
