"""The system calls that a local desktop may not make, in the words of the OCI runtime specification.

Namespaces, capabilities and limits are the walls. This keeps guests away from kernel features that namespaces do not hold
(vsock, keyrings) or that have a history of holes (nested user namespaces, BPF, io_uring), none of which a desktop needs.
Ordinary programs run: Chromium with ``--no-sandbox``, GNOME's applications, debuggers inside the guest.
"""

from __future__ import annotations

import platform
from typing import Any

ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
"""Calls of any other architecture, 32-bit ones included, end the caller."""

_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97

_MOUNTS = """
    mount umount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr
    open_tree_attr statmount listmount swapon swapoff quotactl quotactl_fd open_by_handle_at
"""
_NAMESPACES = "setns unshare"
_KERNEL = """
    init_module finit_module delete_module kexec_load kexec_file_load reboot acct syslog bpf perf_event_open
    userfaultfd io_uring_setup io_uring_enter io_uring_register iopl ioperm lookup_dcookie nfsservctl vhangup
    fanotify_init kcmp process_madvise
"""
_KEYRINGS = "add_key request_key keyctl"
_CLOCKS = "settimeofday clock_settime clock_adjtime adjtimex stime"
_NUMA = "mbind migrate_pages move_pages set_mempolicy set_mempolicy_home_node"

DENIED = tuple(" ".join((_MOUNTS, _NAMESPACES, _KERNEL, _KEYRINGS, _CLOCKS, _NUMA)).split())
"""They fail with EPERM."""

_CLONE_NEW = 0x7E020000
"""Every flag of `clone` that makes a namespace."""
_ADDRESS_FAMILIES = frozenset({1, 2, 10, 16})
"""Unix, IPv4, IPv6, netlink. Vsock (40) leads past the network namespace to the hypervisor."""
_HIGHEST_FAMILY = max(_ADDRESS_FAMILIES)


def profile(machine: str | None = None) -> dict[str, Any] | None:
    """The profile for the machine, this one by default; None where there is none."""
    architecture = ARCHITECTURES.get(machine or platform.machine())
    if architecture is None:
        return None
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": [architecture],
        "syscalls": [
            _refused(list(DENIED), _EPERM),
            # clone3 hides its flags from filters: the C library falls back to clone.
            _refused(["clone3"], _ENOSYS),
            *(
                _refused(["clone"], _EPERM, {"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"})
                for flag in (1 << bit for bit in range(32))
                if flag & _CLONE_NEW
            ),
            *(
                _refused(["socket", "socketpair"], _EAFNOSUPPORT, {"index": 0, "value": family, "op": "SCMP_CMP_EQ"})
                for family in range(_HIGHEST_FAMILY)
                if family not in _ADDRESS_FAMILIES
            ),
            _refused(
                ["socket", "socketpair"],
                _EAFNOSUPPORT,
                {"index": 0, "value": _HIGHEST_FAMILY, "op": "SCMP_CMP_GT"},
            ),
        ],
    }


def _refused(names: list[str], errno: int, *conditions: dict[str, Any]) -> dict[str, Any]:
    rule: dict[str, Any] = {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": errno}
    return rule | {"args": list(conditions)} if conditions else rule
