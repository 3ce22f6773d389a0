"""What tests of real desktops share: a word with the guest, and whatever a desktop leaves on the machine."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from vm_pool.errors import ProviderError
from vm_pool.providers.base import ReachesVMs
from vm_pool.providers.local import LocalProvider
from vm_pool.providers.local.folders import folder_of


def _why_none() -> str:
    try:
        LocalProvider({}).check_available()
    except ProviderError as error:
        return str(error)
    return ""


needs_local_desktops = pytest.mark.skipif(bool(_why_none()), reason=_why_none() or "they run here")


def in_guest(provider: ReachesVMs, vm_id: str, command: str, *, seconds: float = 60) -> str:
    """Runs a shell command in the guest as its user; returns all it printed."""
    return said_by(provider.connect(vm_id, "control"), command, seconds=seconds)


def said_by(connection: socket.socket, command: str, *, seconds: float = 60) -> str:
    """As `in_guest`, over a connection to the guest's control port."""
    connection.settimeout(seconds)
    client = http.client.HTTPConnection("localhost")
    client.sock = connection
    body = json.dumps({"command": command, "shell": True})
    client.request("POST", "/execute", body, {"Content-Type": "application/json"})
    reply = json.loads(client.getresponse().read())
    client.close()
    assert reply["status"] == "success", reply
    return str(reply["output"]) + str(reply["error"])


def traces(mark: str) -> list[str]:
    """Processes, mounts, cgroups and folders on this machine that carry a VM's id, or begin with a host's."""
    found: list[str] = []
    with suppress(FileNotFoundError):  # it is there as long as any desktop is
        found += [f"folder {path}" for path in folder_of("x").parent.glob(f"{mark}*")]
    found += [f"cgroup {path}" for path in cgroups(mark)]
    found += [f"mount {line}" for line in Path("/proc/mounts").read_text().splitlines() if mark in line]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_text(errors="replace").split("\0")
            except OSError:
                continue
            if any(f"/desktops/{mark}" in word for word in words):
                found.append(f"process {entry.name} {' '.join(words)[:200]}")
    return found


def cgroups(mark: str) -> list[Path]:
    """The cgroups of a VM, or of those of a host, in either version of cgroups."""
    top = Path("/sys/fs/cgroup")
    return [path for place in (top, *top.iterdir()) for path in place.glob(f"computer-use-rollouts.{mark}*")]


def processes(vm_id: str) -> list[int]:
    """Every process of a desktop, as the host numbers them."""
    found = set()
    for path in cgroups(vm_id):
        found |= set(map(int, (path / "cgroup.procs").read_text().split()))
    return sorted(found)
