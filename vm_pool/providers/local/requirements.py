"""The requirements of local desktops on this machine: which are met, and what is missing."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from desktop_image import GUEST_ID_COUNT, GUEST_ID_SHIFT
from desktop_image.cache import guest_cache_folder
from vm_pool.egress import parse_policy
from vm_pool.egress.exits import check_commands
from vm_pool.errors import ProviderError
from vm_pool.providers.local import cgroups, entry, host_settings
from vm_pool.providers.local.id_ranges import IdRange
from vm_pool.providers.local.options import LocalOptions

log = logging.getLogger(__name__)

RUNTIMES = ("runc", "crun")
"""OCI runtimes; the first installed one is used."""
_IN_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_PROBE_SECONDS = 10.0
_MOUNT_ON_LAYER = (
    "cd $0; mkdir upper work root; mount -t overlay -o lowerdir=0,upperdir=upper,workdir=work overlay root"
)


@dataclass(frozen=True, slots=True)
class HostFeatures:
    """What this machine offers for local desktops."""

    runtime: str
    """The OCI runtime's command."""
    shifts_owners: bool
    """Whether the image's files can have different owners for each desktop."""


def check_machine(options: LocalOptions) -> str:
    """Makes sure that the machine meets the requirements of local desktops.

    Returns:
        The OCI runtime's command.

    Raises:
        ProviderError: It does not; one sentence says what is missing and what to do.
    """
    if os.geteuid() != 0:
        raise ProviderError("local desktops need root, to mount and to make namespaces: start the VM host as root")
    runtime = _runtime(options)
    for command in ("unshare", "mount"):
        if shutil.which(command) is None:
            raise ProviderError(f"local desktops need the command {command}: apt-get install util-linux mount")
    if not _text("/proc/sys/user/max_user_namespaces", "1").strip("0\n"):
        raise ProviderError("local desktops need user namespaces: sysctl -w user.max_user_namespaces=10000")
    if _text("/proc/sys/fs/suid_dumpable", "0").strip() == "1":
        raise ProviderError(
            "local desktops need programs that change users to be closed to others, or a desktop's user could act as its"
            " control server: sysctl -w fs.suid_dumpable=0"
        )
    _check_namespaces()
    if "overlay" not in _text("/proc/filesystems", ""):
        subprocess.run(["modprobe", "overlay"], check=False, capture_output=True)  # noqa: S607
        if "overlay" not in _text("/proc/filesystems", ""):
            raise ProviderError("local desktops need overlayfs, which this kernel does not have: use --provider qemu")
    _check_limits(options)
    if parse_policy(options.guest_network).reaches_anything:
        check_commands()
    return runtime


def inspect_host(options: LocalOptions) -> HostFeatures:
    """Returns what the machine offers for local desktops; logs what it has only in part.

    Raises:
        ProviderError: A requirement is not met.
    """
    runtime = check_machine(options)
    if settings := host_settings.too_low(options):
        log.warning(
            "one desktop could take more than half of what this machine has for all: sysctl -w %s", " ".join(settings)
        )
    return HostFeatures(runtime, _shifts_owners())


def _runtime(options: LocalOptions) -> str:
    for name in (options.runtime,) if options.runtime else RUNTIMES:
        if (found := shutil.which(name)) is not None:
            if Path(found).name == "crun" and cgroups.hybrid():
                raise ProviderError(
                    "crun does not run where both versions of cgroups are mounted: apt-get install runc"
                )
            return found
    wanted = options.runtime or " or ".join(RUNTIMES)
    raise ProviderError(f"local desktops need an OCI runtime, {wanted}: apt-get install runc")


def _check_namespaces() -> None:
    try:
        done = subprocess.run(  # noqa: S603
            [*_IN_NAMESPACES, "true"], check=False, capture_output=True, text=True, timeout=_PROBE_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise ProviderError(f"local desktops need namespaces, and making some took over {_PROBE_SECONDS} s") from error
    if done.returncode != 0:
        why = " ".join(done.stderr.split())[:200]
        raise ProviderError(
            f"local desktops need the right to make namespaces and to mount ({why}): start the VM host as root outside of "
            "any container, or in one with --privileged"
        )


def _check_limits(options: LocalOptions) -> None:
    limits = {"memory": "memory_mib", "pids": "processes", "cpu": "cpus"}
    wanted = [name for name, option in limits.items() if getattr(options, option) is not None]
    lacking = cgroups.unlimitable(wanted)
    if lacking:
        without = " ".join(f"{limits[name]}=null" for name in lacking)
        raise ProviderError(
            f"this machine cannot limit a desktop's {' and '.join(lacking)}: mount the cgroup controllers at /sys/fs/cgroup, "
            f"or do without with the provider options {without}"
        )


def _shifts_owners() -> bool:
    """Tests whether owners can be shifted on the images' file system, with an overlay on top."""
    stored = next(folder for folder in (guest_cache_folder(), *guest_cache_folder().parents) if folder.is_dir())
    one = IdRange(0, shared=False)
    settings: entry.EntrySettings = {
        "owner": one.owner,
        "first": one.first,
        "count": GUEST_ID_COUNT,
        "stored": GUEST_ID_SHIFT,
        "layers": [str(stored)],
        "limits": {},
    }
    with tempfile.TemporaryDirectory() as place:
        command = [*_IN_NAMESPACES, sys.executable, "-I", "-S", entry.__file__]
        command += [place, json.dumps(settings), "sh", "-e", "-c", _MOUNT_ON_LAYER, place]
        try:
            done = subprocess.run(  # noqa: S603
                command, check=False, capture_output=True, text=True, timeout=_PROBE_SECONDS
            )
        except subprocess.TimeoutExpired:
            return False
    if done.returncode != 0:
        log.warning(
            "owners of files in %s cannot be shifted here (%s), so all local desktops are the same users outside and share"
            " what the kernel counts by user; Linux 5.19 with ext4, XFS or Btrfs can",
            stored,
            " ".join((done.stdout + done.stderr).split())[:200],
        )
    return done.returncode == 0


def _text(path: str, otherwise: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return otherwise
