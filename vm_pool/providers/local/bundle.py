"""The OCI runtime's configuration for a desktop: its namespaces, mounts, capabilities and limits.

Root in the guest is an id without any rights outside. Nothing of the host is mounted except the device nodes that the
runtime itself adds (null, zero, full, random, urandom, tty). The network namespace has only a loopback.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from desktop_image import GUEST_ID_COUNT
from vm_pool.providers.local import cgroups, seccomp
from vm_pool.providers.local.id_ranges import IdRange
from vm_pool.providers.local.options import LocalOptions

SESSION = "/usr/lib/guest/session"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

CAPABILITIES = tuple(
    f"CAP_{name}"
    for name in ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE")
)
"""Needed to switch users, for sudo and to install files; they apply only to the guest's own users and files."""

TERMINALS = 256
"""Pseudo-terminals of one desktop. The host has about 3,000 for all, unless `kernel.pty.max` was changed."""

_SETTINGS = {"net.ipv4.tcp_rmem": "4096 131072 6291456", "net.ipv4.tcp_wmem": "4096 16384 4194304"}
"""For the desktop's network, whatever the host's are: bytes of memory for what a TCP socket receives and sends."""

_HIDDEN_IN_PROC = """
    acpi asound buddyinfo bus cgroups cmdline config.gz consoles crypto devices diskstats dma driver execdomains fb fs
    interrupts iomem ioports irq kallsyms kcore key-users keys kmsg kpagecgroup kpagecount kpageflags latency_stats locks
    mdstat misc modules mtrr pagetypeinfo partitions pressure sched_debug schedstat scsi slabinfo softirqs swaps
    sysrq-trigger timer_list tty vmallocinfo zoneinfo
"""
_SEEN_IN_SYS = ("devices", "system")
"""Of /sys only /sys/devices/system is visible: the processors, which programs count there."""


def runtime_config(
    options: LocalOptions, *, hostname: str, cgroup: str, ids: IdRange, namespace: Path
) -> dict[str, Any]:
    """Returns the bundle's config.json.

    Args:
        options: Screen and limits.
        hostname: The guest's name.
        cgroup: The path of this desktop's own cgroup.
        ids: The host ids of its users.
        namespace: Where its user namespace is mounted.
    """
    return {
        "ociVersion": "1.0.2",
        "hostname": hostname,
        "root": {"path": "root", "readonly": False},
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "cwd": "/",
            "args": [SESSION],
            "env": [f"PATH={_PATH}", f"GUEST_SCREEN={options.screen_width}x{options.screen_height}", "LANG=C.UTF-8"],
            "capabilities": {kind: list(CAPABILITIES) for kind in ("bounding", "effective", "permitted")},
            # sudo's password concerns only the guest: root there has no rights outside.
            "noNewPrivileges": False,
        },
        "mounts": _mounts(),
        "linux": {
            "namespaces": [
                {"type": "user", "path": str(namespace)},
                *({"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network", "cgroup")),
            ],
            "uidMappings": [_mapping(ids)],
            "gidMappings": [_mapping(ids)],
            "cgroupsPath": cgroup,
            "resources": _limits(options),
            "sysctl": _SETTINGS,
            "maskedPaths": [*(f"/proc/{name}" for name in _HIDDEN_IN_PROC.split()), *_hidden_in_sys()],
            "readonlyPaths": ["/proc/sys"],
            "rootfsPropagation": "private",
        }
        | ({"seccomp": profile} if (profile := seccomp.profile()) else {}),
    }


def _mapping(ids: IdRange) -> dict[str, int]:
    return {"containerID": 0, "hostID": ids.first, "size": GUEST_ID_COUNT}


def _mounts() -> list[dict[str, Any]]:
    def mount(kind: str, where: str, *options: str) -> dict[str, Any]:
        return {"destination": where, "type": kind, "source": kind, "options": ["nosuid", *options]}

    return [
        mount("proc", "/proc", "nodev", "noexec"),
        mount("sysfs", "/sys", "nodev", "noexec", "ro"),
        mount("tmpfs", "/dev", "noexec", "strictatime", "mode=755", "size=64k", "nr_inodes=1k"),
        mount("devpts", "/dev/pts", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5", f"max={TERMINALS}"),
        mount("mqueue", "/dev/mqueue", "nodev", "noexec"),
        mount("tmpfs", "/dev/shm", "nodev", "mode=1777", "size=1g", "nr_inodes=64k"),  # noqa: S108 (the guest's own)
        mount("tmpfs", "/tmp", "nodev", "mode=1777", "size=1g", "nr_inodes=64k"),  # noqa: S108 (the guest's own)
        mount("tmpfs", "/run", "nodev", "mode=755", "size=64m", "nr_inodes=16k"),
    ]


def _limits(options: LocalOptions) -> dict[str, Any]:
    limits: dict[str, Any] = {"devices": [{"allow": False, "access": "rwm"}]}
    if options.memory_mib is not None:
        limits["memory"] = {"limit": options.memory_mib * 1024 * 1024}
        if cgroups.counts_swap():
            limits["memory"]["swap"] = limits["memory"]["limit"]  # of both together: none
    if options.processes is not None:
        limits["pids"] = {"limit": options.processes}
    if options.cpus is not None:
        limits["cpu"] = {"period": 100_000, "quota": round(options.cpus * 100_000)}
    return limits


def _hidden_in_sys() -> list[str]:
    """Returns all paths in /sys that are hidden."""
    hidden = []
    folder = Path("/sys")
    for seen in _SEEN_IN_SYS:
        hidden += [str(path) for path in sorted(folder.iterdir()) if path.name != seen]
        folder /= seen
    return hidden
