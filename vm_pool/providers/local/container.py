"""One desktop as a container: starts it through its keeper, connects to it, inspects it, and ends it with all it holds.

The keeper (`keeper.sh`) is the first process of a PID namespace and has its own mount namespace: whenever it dies, the
kernel ends the whole desktop and its mounts. It dies with this process, since it reads from this process's pipe.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from desktop_image import GUEST_ID_COUNT, GUEST_ID_SHIFT, GuestRoot
from vm_pool.egress import parse_policy
from vm_pool.egress.exits import NAME_SERVER, make_exit, make_interface
from vm_pool.egress.relay import Outlet, Relay
from vm_pool.namespaces import connect_inside
from vm_pool.processes import end_with_children
from vm_pool.providers.folder_lock import make_held, still_holds
from vm_pool.providers.guest_server import PORTS
from vm_pool.providers.local import cgroups
from vm_pool.providers.local.attestation import Attestor, Server
from vm_pool.providers.local.bundle import runtime_config
from vm_pool.providers.local.entry import EntrySettings
from vm_pool.providers.local.folders import end_leftover, folder_of, remove_traces
from vm_pool.providers.local.handles import DesktopHandles
from vm_pool.providers.local.id_ranges import IdRange, claim
from vm_pool.providers.local.keeper_process import END_SECONDS, PARTS, launch_keeper, launched, only_child
from vm_pool.providers.local.kernel_memory import KernelMemoryWatch
from vm_pool.providers.local.options import LocalOptions
from vm_pool.providers.local.requirements import HostFeatures

log = logging.getLogger(__name__)

LAUNCH_SECONDS = 20.0
"""From keeper launch to the session's first instruction; hundredths of a second unless the machine is very busy."""
HOSTNAME = "desktop"
SOCKET_BYTES = 128 << 20
"""Memory of one desktop's TCP and UDP sockets, where it is counted separately."""
FILES_PER_MIB = 128
"""Of the space that a desktop may write."""
LIMITS = {
    # 1, not 0: this also keeps the host's crash handler, if any, from being started for the guest.
    "RLIMIT_CORE": [1, 1],
    "RLIMIT_NOFILE": [1024, 4096],
    "RLIMIT_SIGPENDING": [8192, 8192],
    "RLIMIT_MSGQUEUE": [819_200, 819_200],
    "RLIMIT_MEMLOCK": [8 << 20, 8 << 20],
}
"""Soft and hard, for each process. Those of signals, queues and locked memory also apply to all its users together."""


class DesktopStopped(RuntimeError):
    """The desktop was stopped during an operation on it."""


class Container:
    """A desktop's processes, mounts, cgroup and folder.

    Args:
        vm_id: Names all of them.
        options: Screen and limits.
        machine: The features of this machine.
        relay: Makes its internet connections, where its policy allows any.
    """

    def __init__(self, vm_id: str, options: LocalOptions, machine: HostFeatures, relay: Relay) -> None:
        self.vm_id = vm_id
        self.folder = folder_of(vm_id)
        self._options = options
        self._machine = machine
        self._relay = relay
        self._policy = parse_policy(options.guest_network)
        self._outlet: Outlet | None = None
        self._lock = threading.Lock()
        self._stopped = False
        self._keeper: subprocess.Popen[bytes] | None = None
        self._held: int | None = None
        self._made_folder = False
        """Whether anything of this desktop may be left that is this process's to remove."""
        self._insides: DesktopHandles | None = None
        self._layers: tuple[Path, ...] = ()
        self._healthy: Server | None = None
        self._watch: KernelMemoryWatch | None = None

    def start(self, root: GuestRoot) -> None:
        """Starts the desktop's session; returns as soon as its first process runs.

        Raises:
            RuntimeError: It cannot be started; one sentence from the runtime or from mount.
            DesktopStopped: `end` was called meanwhile.
        """
        try:
            end_leftover(self.vm_id)
            self._layers = root.layers
            ids = self._make_folder()
            keeper = self._launch(root, ids)
            said = launched(keeper, LAUNCH_SECONDS)
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
        """Opens a connection to one of its ports.

        Raises:
            OSError: Nothing answers there.
            DesktopStopped: It is not running.
        """
        with self._inside() as inside:
            return connect_inside(inside.network, port, seconds, as_root=port == PORTS["control"])

    def changed_files(self) -> Iterator[str]:
        """Yields the files that were written, replaced or removed since the start, as absolute paths in the guest."""
        with self._inside() as inside:
            for base, _folders, files, _descriptor in os.fwalk(".", dir_fd=inside.written):
                yield from (os.path.normpath(f"/{base}/{name}") for name in files)

    def note_server(self) -> None:
        """Records the server at the control port now as the guest's own."""
        with self._inside() as inside:
            self._healthy = Attestor(inside, self._layers).healthy_server()

    def alterations(self) -> list[str]:
        """Returns a sentence for each change of the guest's server since it was recorded; empty if unchanged."""
        if self._healthy is None:
            raise DesktopStopped(f"{self.vm_id} is not running")
        with self._inside() as inside:
            try:
                return Attestor(inside, self._layers).alterations(self._healthy)
            except FileNotFoundError:  # below its first process's /proc
                return ["the desktop's session has ended"]

    @property
    def stopped(self) -> bool:
        """Whether `end` was called."""
        return self._stopped

    def console(self) -> str:
        """Returns the last lines that its session wrote."""
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
        """Ends the desktop in whatever state it is; a running `start` then raises.

        Raises:
            TimeoutError: A process does not end.
        """
        with self._lock:
            self._stopped = True
            keeper, self._keeper = self._keeper, None
            outlet, self._outlet = self._outlet, None
            insides, self._insides = self._insides, None
            held, self._held = self._held, None
            watch, self._watch = self._watch, None
        if insides is not None:
            insides.close()
        try:
            if watch is not None:
                watch.stop()
            if keeper is not None:
                cgroups.thaw(self.vm_id)
                end_with_children(keeper, END_SECONDS)
                for stream in (keeper.stdin, keeper.stdout):
                    if stream is not None:
                        stream.close()
            if held is None:
                if self._made_folder:  # an earlier end has failed
                    end_leftover(self.vm_id)
            elif still_holds(held, self.folder):  # else it is another process's
                remove_traces(self.vm_id)
            self._made_folder = False
        finally:
            if held is not None:
                os.close(held)
            if outlet is not None:
                outlet.close()

    def _open_insides(self, inside: Path) -> None:
        """Opens handles for later checks, as a process id may be reused."""
        insides = DesktopHandles.found(inside, self.folder)
        with self._lock:
            if self._stopped:
                insides.close()
                return
            self._insides = insides
        watch = KernelMemoryWatch(inside / "proc", insides.session, self._overdone)
        with self._lock:
            if not self._stopped:
                self._watch = watch
                return
        watch.stop()

    def _overdone(self, what: str) -> None:
        """Ends its processes, from the watching thread; the holder finds the desktop gone."""
        with self._lock:
            if self._keeper is not None:
                log.warning("%s is ended: its programs hold %s, which the kernel counts for nobody", self.vm_id, what)
                self._keeper.kill()

    @contextmanager
    def _inside(self) -> Iterator[DesktopHandles]:
        """Yields the handles of the running desktop while it is inspected."""
        with self._lock:
            if self._insides is None:
                raise DesktopStopped(f"{self.vm_id} is not running")
            insides = self._insides.copy()
        try:
            yield insides
        finally:
            insides.close()

    def _let_out(self) -> None:
        """Gives the desktop internet access, if its policy allows any."""
        if not self._policy.reaches_anything:
            return
        with self._inside() as inside:
            make_interface(inside.network)
            outlet = self._relay.open(make_exit(inside.network), self._policy)
        with self._lock:
            if not self._stopped:
                self._outlet = outlet
                return
        outlet.close()

    def _make_folder(self) -> IdRange:
        held = make_held(self.folder, 0o711)  # the guest's root, without rights here, must pass through these folders
        with self._lock:
            self._held, self._made_folder = held, True
            if self._stopped:
                raise DesktopStopped(f"{self.vm_id} was stopped before it started")
        ids = claim(self.folder, shared=not self._machine.shifts_owners)
        for name in ("disk", "root", PARTS):
            (self.folder / name).mkdir(exist_ok=True)
            (self.folder / name).chmod(0o711)  # whatever the umask is
        cgroup = cgroups.cgroup_of(self.vm_id)
        namespace = self.folder / PARTS / "users"
        config = runtime_config(self._options, hostname=HOSTNAME, cgroup=cgroup, ids=ids, namespace=namespace)
        (self.folder / "config.json").write_text(json.dumps(config))
        if self._options.memory_mib is not None:
            with self._lock:  # `end` removes the cgroup, and does not look for it again
                if self._stopped:
                    raise DesktopStopped(f"{self.vm_id} was stopped before it started")
                cgroups.limit_sockets(self.vm_id, SOCKET_BYTES)
        return ids

    def _launch(self, root: GuestRoot, ids: IdRange) -> subprocess.Popen[bytes]:
        settings: EntrySettings = {
            "owner": ids.owner,
            "first": ids.first,
            "count": GUEST_ID_COUNT,
            "stored": GUEST_ID_SHIFT,
            "layers": [str(layer) for layer in root.layers],
            "limits": LIMITS,
        }
        written = self._options.disk_mib
        arguments = [self.vm_id, cgroups.cgroup_of(self.vm_id), str(written), str(written * FILES_PER_MIB)]
        arguments += [str(ids.first), self._machine.runtime]
        arguments += [":".join(f"{PARTS}/{number}" for number in range(len(root.layers)))]
        arguments += [NAME_SERVER if self._policy.reaches_anything else ""]
        with self._lock:
            if self._stopped:
                raise DesktopStopped(f"{self.vm_id} was stopped before it started")
            self._keeper = launch_keeper(self.folder, settings, arguments)
            return self._keeper
