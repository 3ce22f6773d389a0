"""The provider `remote`: desktops that a service lends, given back in all cases, whatever the service answers."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.integration.vm_pool.emulator_service import TOKEN, Answer, EmulatorService, emulator_service
from vm_pool.errors import ProviderError, VMsInUse
from vm_pool.providers import load_provider
from vm_pool.providers.base import check_available, connect
from vm_pool.providers.remote import RemoteProvider
from vm_pool.providers.remote.options import TOKEN_VARIABLE


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)


@pytest.fixture(name="service")
def _service() -> Iterator[EmulatorService]:
    with emulator_service() as running:
        yield running


@pytest.fixture(name="provider")
def _provider(service: EmulatorService) -> RemoteProvider:
    return remote(service)


def remote(service: EmulatorService, **options: Any) -> RemoteProvider:
    made = load_provider("remote", {"url": service.url, "call_seconds": 30, **options})
    assert isinstance(made, RemoteProvider)
    return made


def records(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.glob("cache/**/remote/*"))


def test_a_desktop_is_lent_and_given_back(provider: RemoteProvider, service: EmulatorService, tmp_path: Path) -> None:
    check_available(provider)

    endpoint = provider.boot("host-0")

    assert (endpoint.address, set(endpoint.ports)) == ("127.0.0.1", {"control", "vnc"})
    provider.check("host-0")
    with connect(provider, "host-0", "control", endpoint):
        assert records(tmp_path) == ["host-0"]
    provider.stop("host-0")
    assert (service.lent, records(tmp_path)) == ({}, [])
    provider.stop("host-0")  # harmless


def test_to_be_reset_is_to_be_lent_another_desktop(provider: RemoteProvider, service: EmulatorService) -> None:
    provider.boot("host-0")
    service.quota = 1  # so that the first must be given back before

    provider.reset("host-0")

    assert list(service.lent) == ["emu-2"]
    provider.check("host-0")
    provider.stop("host-0")
    assert service.lent == {}


def test_what_the_service_took_back_is_lost(provider: RemoteProvider, service: EmulatorService) -> None:
    provider.boot("host-0")
    service.lent.clear()

    with pytest.raises(RuntimeError, match="HTTP 404: 'Emulator not found'"):
        provider.check("host-0")
    provider.reset("host-0")
    provider.check("host-0")
    provider.stop("host-0")


@pytest.mark.parametrize("call", ["reset", "stop"])
def test_a_desktop_that_could_not_be_given_back_is_so_later(
    provider: RemoteProvider, service: EmulatorService, tmp_path: Path, call: str
) -> None:
    provider.boot("host-0")
    failing = [(503, {"message": "later", "code": 503})]
    service.instead = lambda path: failing.pop() if path == "/stop_emulator" and failing else None

    with pytest.raises(RuntimeError, match="HTTP 503: 'later'"):
        getattr(provider, call)("host-0")
    provider.stop("host-0")

    assert (service.lent, records(tmp_path)) == ({}, [])
    provider.boot("host-0")
    provider.stop("host-0")


def test_a_start_waits_while_all_desktops_are_lent(provider: RemoteProvider, service: EmulatorService) -> None:
    service.quota = 1
    provider.boot("host-0")
    threading.Timer(1.0, service.lent.clear).start()

    provider.boot("host-1")

    assert list(service.lent) == ["emu-2"]
    assert service.requests.count("POST /start_emulator") > 2
    provider.stop("host-0")
    provider.stop("host-1")


def test_a_start_that_waits_has_a_deadline(service: EmulatorService, tmp_path: Path) -> None:
    service.quota = 0
    provider = remote(service, start_seconds=1.2)

    with pytest.raises(RuntimeError, match=r"no desktop is free: .*HTTP 429: 'Token limit exceeded' \(after 1.2 s\)"):
        provider.boot("host-0")
    provider.stop("host-0")
    assert records(tmp_path) == []


def test_a_start_that_is_stopped_gives_back_what_it_gets(provider: RemoteProvider, service: EmulatorService) -> None:
    service.quota = 0
    failures: list[str] = []

    def boot() -> None:
        try:
            provider.boot("host-0")
        except RuntimeError as error:
            failures.append(str(error))

    booting = threading.Thread(target=boot)
    booting.start()
    while "POST /start_emulator" not in service.requests:
        time.sleep(0.01)
    provider.stop("host-0")
    service.quota = 3
    booting.join(30)

    assert (len(failures), service.lent) == (1, {})


HOST = """
import sys, time
from vm_pool.providers import load_provider
provider = load_provider("remote", {"url": sys.argv[1]})
for vm_id in ("host-0", "host-1"):
    provider.boot(vm_id)
    print("booted", flush=True)
time.sleep(600)
"""


def started_host(service: EmulatorService, count: int) -> subprocess.Popen[str]:
    """A process that has lent so many desktops, and may be lending another."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, service.url], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert host.stdout is not None
    for _ in range(count):
        assert host.stdout.readline() == "booted\n"
    return host


def killed(host: subprocess.Popen[str]) -> None:
    host.send_signal(signal.SIGKILL)
    host.wait()
    assert host.stdout is not None
    host.stdout.close()


def test_what_a_killed_host_had_lent_is_given_back(
    provider: RemoteProvider, service: EmulatorService, tmp_path: Path
) -> None:
    killed(started_host(service, 2))
    assert len(service.lent) == 2

    assert sorted(provider.reap_leftovers("host")) == ["host-0", "host-1"]

    assert (service.lent, records(tmp_path)) == ({}, [])
    assert provider.reap_leftovers("host") == []


def test_what_killed_hosts_of_other_names_had_lent_is_given_back(
    provider: RemoteProvider, service: EmulatorService, tmp_path: Path
) -> None:
    killed(started_host(service, 2))
    with emulator_service() as another:
        assert remote(another).reap_leftovers("run-of-today") == []
    assert len(service.lent) == 2

    assert sorted(provider.reap_leftovers("run-of-today")) == ["host-0", "host-1"]

    assert (service.lent, records(tmp_path)) == ({}, [])


def test_what_was_being_started_is_named(
    provider: RemoteProvider, service: EmulatorService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service.quota = 1
    host = started_host(service, 1)
    while service.requests.count("POST /start_emulator") < 2:
        time.sleep(0.01)
    killed(host)

    with caplog.at_level(logging.WARNING):
        assert provider.reap_leftovers("host") == ["host-0"]

    assert f"host-1 was being started by {service.url} when its host was killed" in caplog.text
    assert records(tmp_path) == []


def test_a_living_hosts_desktops_are_left_alone(
    provider: RemoteProvider, service: EmulatorService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vm_pool.providers.folder_lock.LET_GO_SECONDS", 0.5)
    host = started_host(service, 2)

    with pytest.raises(VMsInUse, match="uses host-0: stop that one"):
        provider.reap_leftovers("host")

    assert provider.reap_leftovers("run-of-today") == []
    assert len(service.lent) == 2
    killed(host)
    provider.reap_leftovers("host")


STARTED: dict[str, Any] = {"message": "", "code": 0, "data": {"emulator_id": "emu-1", "server_port": 5000}}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, b"<html>"), "HTTP 200: '<html>'"),
        ((200, []), "answers without an emulator_id"),
        ((200, {"code": 0}), "answers without an emulator_id"),
        ((200, {"code": []}), "answers without an emulator_id"),
        ((200, {**STARTED, "data": {"emulator_id": 7, "server_port": 5000}}), "answers without an emulator_id"),
        ((200, {**STARTED, "data": {"emulator_id": "../x", "server_port": 5000}}), "answers without an emulator_id"),
        ((200, {**STARTED, "data": {"emulator_id": "e" * 300, "server_port": 5000}}), "answers without an emulator_id"),
        ((200, {**STARTED, "data": {"emulator_id": "emu-1"}}), "emulator emu-1 has no server_port among its ports"),
        ((200, {**STARTED, "data": {"emulator_id": "emu-1", "server_port": 0}}), "emulator emu-1 has 0 among"),
        ((200, {**STARTED, "data": {"emulator_id": "emu-1", "server_port": 70_000}}), "emulator emu-1 has 70000 among"),
        ((200, {**STARTED, "data": {"emulator_id": "emu-1", "server_port": True}}), "emulator emu-1 has True among"),
        (
            (200, {**STARTED, "data": {"emulator_id": "emu-1", "server_port": "5000"}}),
            "emulator emu-1 has '5000' among",
        ),
        ((200, {"message": "no token", "code": 401}), "HTTP 401: the service does not take the token: 'no token'"),
        ((403, {"message": "who?", "code": 403}), "HTTP 403: the service does not take the token: 'who?'"),
        ((302, b""), "HTTP 302"),
        ((500, b"broken \x00\xff"), "HTTP 500"),
        ((200, b"[" * 100_000), "HTTP 200"),
        ((200, b" " * (2 << 20)), "answers with more than 1 MiB"),
    ],
)
def test_a_strange_answer_is_one_sentence_without_the_token(
    service: EmulatorService, tmp_path: Path, answer: Answer, said: str
) -> None:
    service.instead = lambda path: answer if path == "/start_emulator" else None
    provider = remote(service, start_seconds=3)

    with pytest.raises(RuntimeError) as refused:
        provider.boot("host-0")

    assert said in str(refused.value)
    assert TOKEN not in str(refused.value)
    assert len(str(refused.value)) < 500
    assert "GET /ping" not in service.requests  # where a redirect led
    provider.stop("host-0")
    assert records(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "url: Field required"),
        ({"url": "desktops:8770"}, "must look like https://HOST:PORT"),
        ({"url": "ftp://desktops"}, "must look like https://HOST:PORT"),
        ({"url": "http://me:hidden@desktops"}, f"must have no user or password: the token comes from {TOKEN_VARIABLE}"),
        ({"url": "http://desktops:port"}, "url: Value error"),
        ({"url": "http://desktops", "token": "x"}, "token: Extra inputs are not permitted"),
        ({"url": "http://desktops", "start_seconds": 0}, "start_seconds: "),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ProviderError, match="does not accept its options") as refused:
        load_provider("remote", options)
    assert said in str(refused.value)
    assert "hidden" not in str(refused.value).replace(TOKEN_VARIABLE, "")


def test_what_is_missing_is_said_before_anything_is_booted(
    provider: RemoteProvider, service: EmulatorService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "another")
    with pytest.raises(ProviderError, match="the service does not take the token"):
        check_available(remote(service))
    monkeypatch.delenv(TOKEN_VARIABLE)
    with pytest.raises(ProviderError, match=f"needs the token of {service.url}: set {TOKEN_VARIABLE}"):
        check_available(remote(service))
    with pytest.raises(ProviderError, match="it cannot be asked"):
        monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
        check_available(load_provider("remote", {"url": "http://127.0.0.1:1"}))


@pytest.mark.parametrize("odd", ["abc\ndef", "abc def", "t\u00f6ken"])
def test_a_token_that_cannot_be_sent_is_refused_without_being_shown(monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, odd)
    with pytest.raises(ProviderError, match=f"{TOKEN_VARIABLE} has letters or blanks that no token has") as refused:
        load_provider("remote", {"url": "http://127.0.0.1:1"})
    assert odd[:3] not in str(refused.value)
