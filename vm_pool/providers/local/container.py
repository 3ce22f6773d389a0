"""One desktop as a container: started through its keeper, reached, looked into, ended with everything it holds.

The keeper (`keeper.sh`) is the first process of a pid namespace and has a mount namespace of its own: when it dies, however
that happens, the kernel ends the whole desktop and its mounts. It dies with this process, whose pipe it reads.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vm_pool.egress import parse_policy
from vm_pool.egress.exits import NAME_SERVER, make_exit, make_interface
from vm_pool.egress.relay import Outlet, Relay
from vm_pool.guest import GUEST_ID_SHIFT, GuestRoot
from vm_pool.namespaces import connect_inside
from vm_pool.providers.desktop import PORTS
from vm_pool.providers.holding import abandoned, make_held
from vm_pool.providers.local import cgroups
from vm_pool.providers.local.attestation import Attestor, Server
from vm_pool.providers.local.bundle import runtime_config
from vm_pool.providers.local.insides import Insides
from vm_pool.providers.local.keepers import END_SECONDS, end_keeper, first_line, keepers_of, launch_keeper, only_child
from vm_pool.providers.local.options import LocalOptions
from vm_pool.scripts import checked_vm_id

log = logging.getLogger(__name__)

LAUNCH_SECONDS = 20.0
"""From launching the keeper to the session's first instruction; hundredths of a second unless the machine is very busy."""
HOSTNAME = "desktop"
STATE_FOLDER = Path("/run/computer-use-rollouts/desktops")
"""Where the folders of running desktops are, each named after its VM. Goes, with the folder above it, with the last of them."""


class DesktopStopped(RuntimeError):
    """The desktop was stopped while something was being done with it."""


class Container:
    """A desktop's processes, mounts, cgroup and folder.

    Args:
        vm_id: Names all of them.
        options: Screen and limits.
        runtime: The OCI runtime's command.
        relay: Makes its connections to the internet, where it may go there.
    """

    def __init__(self, vm_id: str, options: LocalOptions, runtime: str, relay: Relay) -> None:
        self.vm_id = vm_id
        self.folder = folder_of(vm_id)
        self._options = options
        self._runtime = runtime
        self._relay = relay
        self._policy = parse_policy(options.guest_network)
        self._outlet: Outlet | None = None
        self._guard = threading.Lock()
        self._stopped = False
        self._keeper: subprocess.Popen[bytes] | None = None
        self._held: int | None = None
        self._insides: Insides | None = None
        self._layers: tuple[Path, ...] = ()
        self._healthy: Server | None = None

    def start(self, root: GuestRoot) -> None:
        """Starts the desktop's session; returns as soon as its first process runs.

        Raises:
            RuntimeError: It cannot be started; one sentence of the runtime's or of mount's.
            DesktopStopped: `end` was called meanwhile.
        """
        try:
            end_leftover(self.vm_id)
            self._layers = root.layers
            self._make_folder(root)
            keeper = self._launch(root)
            said = first_line(keeper, LAUNCH_SECONDS)
            if said != "started":
                raise RuntimeError(
                    f"{self.vm_id} cannot be started: {said or f'nothing within {LAUNCH_SECONDS:.0f} s'}"
                )
            self._open_insides(Path(f"/proc/{only_child(keeper.pid)}/root"))
            self._let_out()
        except BaseException as error:
            stopped = self._stopped
            self.end()
            if stopped:
                raise DesktopStopped(f"{self.vm_id} was stopped while it started") from error
            raise

    def connect(self, port: int, seconds: float) -> socket.socket:
        """A connection to one of its ports.

        Raises:
            OSError: Nothing answers there.
            DesktopStopped: It is not running.
        """
        with self._inside() as inside:
            return connect_inside(inside.network, port, seconds, as_root=port == PORTS["control"])

    def changed_files(self) -> Iterator[str]:
        """The files that were written, replaced or removed since the start, as absolute paths in the guest."""
        with self._inside() as inside:
            for base, _folders, files, _descriptor in os.fwalk(".", dir_fd=inside.written):
                yield from (os.path.normpath(f"/{base}/{name}") for name in files)

    def note_server(self) -> None:
        """Takes whoever can answer at the control port now for the guest's server."""
        with self._inside() as inside:
            self._healthy = Attestor(inside, self._layers).healthy_server()

    def alterations(self) -> list[str]:
        """What of the guest's server is not as it was when it was noted, in sentences; none where all is."""
        if self._healthy is None:
            raise DesktopStopped(f"{self.vm_id} is not running")
        with self._inside() as inside:
            return Attestor(inside, self._layers).alterations(self._healthy)

    @property
    def stopped(self) -> bool:
        """Whether `end` was called."""
        return self._stopped

    def console(self) -> str:
        """The last lines that its session wrote."""
        try:
            with self._inside() as inside:
                reader = os.open("../console", os.O_RDONLY, dir_fd=inside.written)
        except (DesktopStopped, OSError):
            return "unknown"
        with os.fdopen(reader, errors="replace") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(file.tell() - 2000, 0))
            return " | ".join(file.read().splitlines()[-5:]) or "empty"

    def alive(self) -> bool:
        """Whether the keeper still runs."""
        keeper = self._keeper
        return keeper is not None and keeper.poll() is None

    def end(self) -> None:
        """Ends the desktop in whatever state it is; a `start` that is going on raises.

        Raises:
            TimeoutError: Something does not end.
        """
        with self._guard:
            self._stopped = True
            keeper, self._keeper = self._keeper, None
            outlet, self._outlet = self._outlet, None
            insides, self._insides = self._insides, None
            held, self._held = self._held, None
        if insides is not None:
            insides.close()
        try:
            if keeper is not None:
                end_keeper(keeper.pid)
                keeper.wait(END_SECONDS)
                for stream in (keeper.stdin, keeper.stdout):
                    if stream is not None:
                        stream.close()
            remove_traces(self.vm_id)
        finally:
            if held is not None:
                os.close(held)
            if outlet is not None:
                outlet.close()

    def _open_insides(self, inside: Path) -> None:
        """Takes hold of what is looked at later, for a process id may come to mean another process."""
        insides = Insides.found(inside, self.folder)
        with self._guard:
            self._insides = insides

    @contextmanager
    def _inside(self) -> Iterator[Insides]:
        """What is held of the running desktop, for as long as it is looked at."""
        with self._guard:
            if self._insides is None:
                raise DesktopStopped(f"{self.vm_id} is not running")
            insides = self._insides.copy()
        try:
            yield insides
        finally:
            insides.close()

    def _let_out(self) -> None:
        """Gives the desktop its way out, if it may have one."""
        if not self._policy.reaches_anything:
            return
        with self._inside() as inside:
            make_interface(inside.network)
            outlet = self._relay.open(make_exit(inside.network), self._policy)
        with self._guard:
            if not self._stopped:
                self._outlet = outlet
                return
        outlet.close()

    def _make_folder(self, root: GuestRoot) -> None:
        config = runtime_config(self._options, hostname=HOSTNAME, cgroup=cgroups.cgroup_of(self.vm_id))
        held = make_held(self.folder, 0o711)  # the guest's root, nobody here, passes through it and those above
        with self._guard:
            if self._stopped:
                os.close(held)
                raise DesktopStopped(f"{self.vm_id} was stopped before it started")
            self._held = held
        for name in ("disk", "root", "layers"):
            (self.folder / name).mkdir(mode=0o711, exist_ok=True)
        for number, layer in enumerate(root.layers):
            (self.folder / "layers" / str(number)).symlink_to(layer)
        (self.folder / "config.json").write_text(json.dumps(config))

    def _launch(self, root: GuestRoot) -> subprocess.Popen[bytes]:
        arguments = [self.vm_id, cgroups.cgroup_of(self.vm_id), str(self._options.disk_mib), str(GUEST_ID_SHIFT)]
        arguments += [self._runtime, ":".join(f"layers/{number}" for number in range(len(root.layers)))]
        arguments += [NAME_SERVER if self._policy.reaches_anything else ""]
        with self._guard:
            if self._stopped:
                raise DesktopStopped(f"{self.vm_id} was stopped before it started")
            self._keeper = launch_keeper(self.folder, arguments)
            return self._keeper


def folder_of(vm_id: str) -> Path:
    """A desktop's folder, which exists exactly as long as anything of it may.

    Raises:
        ValueError: That is no VM's id.
    """
    if checked_vm_id(vm_id) in {".", ".."}:
        raise ValueError(f"{vm_id!r} is not a VM's id")
    return STATE_FOLDER / vm_id


def end_leftover(vm_id: str) -> bool:
    """Ends a desktop that an earlier process started, if it is still there; whether it was."""
    if not folder_of(vm_id).exists():
        return False
    for pid in keepers_of(folder_of(vm_id)):
        end_keeper(pid)
    remove_traces(vm_id)
    return True


def leftovers(host_id: str) -> list[str]:
    """The ids of the host's VMs, ``<host>-<number>``, that have a folder."""
    with suppress(FileNotFoundError):
        return sorted(folder.name for folder in STATE_FOLDER.iterdir() if folder.name.rpartition("-")[0] == host_id)
    return []


def end_abandoned() -> list[str]:
    """Ends what is left of desktops whose processes have all ended, of whichever host; returns their VMs' ids."""
    ended: list[str] = []
    for folder in abandoned(STATE_FOLDER):
        if not any(keepers_of(folder)):  # else it may still end by itself, or be of a host that holds no folders yet
            try:
                end_leftover(folder.name)
            except (ValueError, TimeoutError) as error:
                log.warning("a desktop that nobody uses any more stays: %s", error)
            else:
                ended.append(folder.name)
    return ended


def remove_traces(vm_id: str) -> None:
    """Removes the cgroup, then the folder, of a desktop whose keeper has ended; the folders above with the last desktop."""
    cgroups.remove(vm_id, END_SECONDS)
    folder = folder_of(vm_id)
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # there are others
        for above in folder.parents[:2]:
            above.rmdir()
