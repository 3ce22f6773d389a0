"""A desktop that may go to the internet reaches what it was allowed to, and nothing of the host's side, however it asks.

It asks from inside, in a network namespace where every address answers, private ones and the host's own among them: so whatever
gets through is written down. The servers' own record is what is compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from desktop_image.disk import guest_disk
from tests.conftest import REPOSITORY
from tests.desktops import needs_local_desktops, traces
from tests.hostile.small_internet import HOLD, OWN_PUBLIC, PUBLIC, PUBLIC_V6, RESET
from tests.virtual_machines import processes_naming

pytestmark = needs_local_desktops

ALLOWED = {
    "http://public.example/": [PUBLIC],
    f"http://{PUBLIC}/": [PUBLIC],
    "http://93.184.216.99/": ["93.184.216.99"],
    "http://1572395042/": [PUBLIC],
    "http://mixed.example/": ["93.184.216.35"],
    "http://six.example/": [PUBLIC_V6],
    "http://PUBLIC.example./": [PUBLIC],
    "http://public.example/?to=http://allowed.example/": [PUBLIC, "93.184.216.40"],
}
REFUSED = [
    *(f"http://{name}.example/" for name in ("private", "loopback", "link", "carrier", "mapped", "nat64", "sixtofour")),
    *(f"http://{name}.example/" for name in ("unique", "own", "azure", "zero", "benchmark", "rebind", "nobody")),
    *(f"http://{address}/" for address in ("10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.1.1")),
    *(f"http://{address}/" for address in ("0.1.2.3", "198.18.77.77", "192.0.0.192", "224.0.0.1", "240.0.0.1")),
    *(f"http://{address}/" for address in (OWN_PUBLIC, "168.63.129.16", "10.0.2.2", "10.0.2.3", "255.255.255.255")),
    *(f"http://{address}/" for address in ("0x0a010203", "167838211", "012.1.2.3", "10.1.515")),
    *(
        f"http://[{address}]/"
        for address in ("::ffff:10.1.2.3", "::ffff:a01:203", "64:ff9b::a01:203", "2002:a01:203::1")
    ),
    *(f"http://[{address}]/" for address in ("fd00::1", "fe80::1", "fec0::1", "ff02::1", "::10.1.2.3", "::", "::1")),
]
REDIRECTED = ["10.1.2.3", "private.example", "169.254.169.254", "[fd00::1]", "rebind.example"]
"""Where a page of the internet sends its reader."""

MARK = f"small-internet-{os.getpid()}"
AFTER_RESET = "http://public.example/?after"


def ask(policy: str, urls: list[str], provider: str = "local") -> dict[str, Any]:
    """What came of each URL."""
    if provider == "qemu":
        guest_disk("core", print)  # there, nothing can be fetched
    command = [
        "unshare",
        "--net",
        "--mount",
        sys.executable,
        str(Path(__file__).with_name("small_internet.py")),
        provider,
        policy,
        f"{MARK}-0",
    ]
    done = subprocess.run(
        command,
        input=json.dumps(urls),
        capture_output=True,
        text=True,
        timeout=220 if provider == "local" else 1500,
        cwd=REPOSITORY,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(Path.home())},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert [*traces(MARK), *processes_naming(MARK)] == []
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(
    scope="module",
    params=["local", pytest.param("qemu", marks=[pytest.mark.slow, pytest.mark.timeout(1600)])],
)
def came(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a guest with the whole internet gets."""
    sent = [f"http://public.example/?to=http://{place}/" for place in REDIRECTED]
    return ask("internet", [*ALLOWED, *REFUSED, *sent, HOLD, RESET, AFTER_RESET], request.param)


def test_the_internet_is_reached(came: dict[str, Any]) -> None:
    assert {url: came[url]["reached"] for url in ALLOWED} == ALLOWED
    assert [url for url in ALLOWED if "error" in came[url]["answer"]] == []


def test_nothing_else_is(came: dict[str, Any]) -> None:
    assert len(REFUSED) >= 25
    assert {url: came[url]["reached"] for url in REFUSED} == {url: [] for url in REFUSED}
    assert [url for url in REFUSED if not came[url]["answer"].startswith("error")] == []


def test_a_page_cannot_send_a_guest_elsewhere(came: dict[str, Any]) -> None:
    sent = [f"http://public.example/?to=http://{place}/" for place in REDIRECTED]

    assert {url: came[url]["reached"] for url in sent} == {url: [PUBLIC] for url in sent}


def test_what_it_holds_open_ends_with_its_reset(came: dict[str, Any]) -> None:
    assert [came[step]["answer"] for step in (HOLD, RESET, AFTER_RESET)] == ["1", "0", PUBLIC]


def test_of_listed_hosts_those_are_reached() -> None:
    listed = {
        "http://allowed.example/": ["93.184.216.40"],
        "http://below.wide.example/": ["93.184.216.41"],
        f"http://{PUBLIC}/": [PUBLIC],
        "http://public.example/": [],
        "http://wide.example/": [],
        "http://93.184.216.40/": [],
        "http://private.example/": [],
        "http://allowed.example/?to=http://public.example/": ["93.184.216.40"],
    }

    found = ask(f"allowed.example,*.wide.example,private.example,{PUBLIC}", list(listed))

    assert {url: found[url]["reached"] for url in listed} == listed


def test_a_guest_reaches_its_own_services() -> None:
    found = ask("internet", ["http://127.0.0.1:5000/platform", "http://10.0.2.15:5000/platform", "http://10.0.2.15/"])

    sent_away = "error: <HTTPError 403: 'Forbidden'>"  # as its control server says to programs in the guest
    assert [one["answer"] for one in found.values()][:2] == [sent_away, sent_away]
    assert "refused" in found["http://10.0.2.15/"]["answer"]
    assert [one["reached"] for one in found.values()] == [[], [], []]


def test_without_a_network_nothing_is_reached() -> None:
    urls = ["http://public.example/", f"http://{PUBLIC}/", "http://10.0.2.2/"]

    assert {url: one["reached"] for url, one in ask("none", urls).items()} == {url: [] for url in urls}
