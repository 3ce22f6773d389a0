"""A task's file comes from the internet and from nowhere else, whatever its task, DNS or a redirect says.

The downloads are made in a network namespace where every address answers, private ones and this machine's own among them, and
each server writes down that it was reached.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.environments.osworld.downloads import TRIES
from tests.conftest import REPOSITORY
from tests.hostile.small_internet import DOWNLOADS, OWN_PUBLIC, PUBLIC, PUBLIC_V6, REQUESTED, VISITED
from tests.hostile.test_guest_network import ALLOWED, REDIRECTED, REFUSED

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace of its own needs root")

NUMBER = "http://1572395042/"
"""An address to a browser; here, only what is written as an address is one."""
REACHED = {url: reached for url, reached in ALLOWED.items() if url != NUMBER}
ONCE = "http://rebind.example/"
"""Looked up once: public then."""


def download(urls: list[str], how: str = DOWNLOADS, **environment: str) -> dict[str, Any]:
    """What came of each URL."""
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, str(Path(__file__).with_name("small_internet.py")), how],
        input=json.dumps(urls),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=REPOSITORY,
        env={
            "PYTHONPATH": str(REPOSITORY),
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(Path.home()),
            **environment,
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def came() -> dict[str, Any]:
    """What is had of the URLs that a guest is tried with, too, and of pages that send elsewhere."""
    return download([*ALLOWED, *REFUSED, *sent_elsewhere()])


def sent_elsewhere() -> list[str]:
    return [f"http://public.example/?to=http://{place}/" for place in REDIRECTED]


def test_files_of_the_internet_are_downloaded(came: dict[str, Any]) -> None:
    assert {url: came[url]["reached"] for url in REACHED} == REACHED
    assert {url: came[url]["answer"] for url in REACHED} == {url: reached[-1] for url, reached in REACHED.items()}
    assert came[NUMBER]["reached"] == []


def test_no_other_address_is_reached(came: dict[str, Any]) -> None:
    refused = [url for url in REFUSED if url != ONCE]

    assert {url: came[url]["reached"] for url in refused} == {url: [] for url in refused}
    assert [url for url in refused if not came[url]["answer"].startswith(f"error: {url}: ")] == []
    assert "ROLLOUT_DOWNLOAD_HOSTS" in came["http://private.example/"]["answer"]
    assert "nobody.example has no address: " in came["http://nobody.example/"]["answer"]


def test_a_name_is_looked_up_once_for_each_request(came: dict[str, Any]) -> None:
    assert came[ONCE]["reached"] == [PUBLIC]


def test_a_page_cannot_send_a_download_elsewhere(came: dict[str, Any]) -> None:
    assert {url: came[url]["reached"] for url in sent_elsewhere()} == {url: [PUBLIC] for url in sent_elsewhere()}


def test_hosts_of_ones_own_network_can_be_trusted() -> None:
    trusted = {
        "http://private.example/": ["10.1.2.3"],
        "http://10.1.2.3/": ["10.1.2.3"],
        "http://own.example:80/": [OWN_PUBLIC],
        "http://[fd00::1]/": ["fd00::1"],
        "http://public.example/?to=http://private.example/": [PUBLIC, "10.1.2.3"],
    }
    others = ["http://10.1.2.4/", "http://unique.example/", "http://127.0.0.1/", "http://loopback.example/"]

    hosts = "Private.example, 10.1.2.3,own.example:80,[fd00::1],loopback.example:81"
    found = download([*trusted, *others], ROLLOUT_DOWNLOAD_HOSTS=hosts)

    assert {url: found[url]["reached"] for url in found} == {**trusted, **{url: [] for url in others}}


def test_a_certificate_must_be_the_names() -> None:
    other_name = "https://same.example/"
    sent_there = f"https://public.example/?to={other_name}"
    found = download(["https://public.example/", other_name, f"https://{PUBLIC}/", sent_there])

    assert found["https://public.example/"] == {"answer": PUBLIC, "reached": [PUBLIC]}
    others = list(found.values())[1:]
    assert ["certificate verify failed" in one["answer"] for one in others] == [True, True, True]
    assert [one["reached"] for one in others] == [[], [], [PUBLIC] * TRIES]


ONLY_A_PROXY_KNOWS = (
    "2852039166",
    "0x7f000001",
    "0xa9.254.169.254",
    "127.1",
    "0177.0.0.1",
    "localhost",
    "intranet",
    "files.local",
    "metadata.google.internal",
    "printer.localhost",
    "%31%32%37.0.0.1",
    "10.1.2.3.",
    "unknown-here.example.0x1",
)
"""Not names of the internet: what a proxy would take for its own network, or for a number."""


def test_through_a_proxy_nothing_private_is_asked_for() -> None:
    asked = ["http://public.example/", "http://six.example/", "http://unknown-here.example/"]
    private = [
        "http://10.1.2.3/",
        "http://private.example/",
        "http://[fd00::1]/",
        "http://public.example/?to=http://10.1.2.3/",
    ]

    unknown = [f"http://{host}/" for host in ONLY_A_PROXY_KNOWS]
    found = download([*asked, *private, *unknown], http_proxy="http://10.0.0.9:80")

    proxied = {url: ["10.0.0.9"] for url in asked}
    assert {url: found[url]["reached"] for url in found} == {
        **proxied,
        **{url: [] for url in private[:3]},
        private[3]: ["10.0.0.9"],
        **{url: [] for url in unknown},
    }
    assert PUBLIC_V6 not in str(found)


@pytest.mark.parametrize("how", [REQUESTED, VISITED])
def test_what_others_choose_is_of_the_internet_too(how: str) -> None:
    """Getters of desktop-env ask for addresses that tasks and guests name, agents on the web for those that pages do."""
    came = download([*ALLOWED, *REFUSED, *sent_elsewhere()], how)
    refused = [url for url in REFUSED if url != ONCE]

    assert {url: came[url]["reached"] for url in REACHED} == REACHED
    assert {url: came[url]["reached"] for url in refused} == {url: [] for url in refused}
    assert {url: came[url]["reached"] for url in sent_elsewhere()} == {url: [PUBLIC] for url in sent_elsewhere()}
    assert [url for url in [*refused, *sent_elsewhere()] if not came[url]["answer"].startswith("error: ")] == []
