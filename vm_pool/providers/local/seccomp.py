"""The system calls that a local desktop may make, as a profile of the OCI runtime specification: an allowlist.

Namespaces, capabilities and limits are the main protection. This profile keeps guests away from the rest of the kernel:
features that namespaces do not contain (vsock, keyrings), that have a history of vulnerabilities (nested user
namespaces, BPF, io_uring) or whose limits the whole host shares (asynchronous I/O, huge pages, socket filters), and
anything newer than this list. It is Docker's default profile without what no desktop needs. Ordinary programs run:
Chromium with ``--no-sandbox``, GNOME's applications, debuggers inside the guest.

The names are those that libseccomp knows; a call whose name it does not know is refused like any call that is not
listed.
"""

from __future__ import annotations

import errno
import platform
from collections.abc import Collection, Mapping
from typing import Any

ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
"""Calls of any other architecture, including 32-bit ones, end the caller."""

_NO_ERROR, _EPERM, _EINVAL, _ENOSYS, _EPROTONOSUPPORT, _ENOTSUP, _EAFNOSUPPORT = 0, 1, 22, 38, 93, 95, 97

_FILES = """
    access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64 fallocate
    fchdir fchmod fchmodat fchmodat2 fchown fchownat fdatasync fgetxattr flistxattr flock fremovexattr fstat
    fstatfs fsync ftruncate futimesat getcwd getdents getdents64 getxattr lchown lgetxattr link linkat listxattr llistxattr
    lremovexattr lseek lstat mkdir mkdirat mknod mknodat name_to_handle_at newfstatat open openat openat2 pread64
    preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv removexattr rename renameat renameat2
    rmdir sendfile splice stat statfs statx symlink symlinkat sync sync_file_range syncfs tee truncate umask unlink
    unlinkat utime utimensat utimes vmsplice write writev
"""
_WATCHED_FILES = "inotify_add_watch inotify_init inotify_init1 inotify_rm_watch"
_MEMORY = """
    brk get_mempolicy madvise map_shadow_stack membarrier mincore mlock mlock2 mlockall mprotect mremap msync munlock munlockall
    munmap pkey_alloc pkey_free pkey_mprotect process_mrelease remap_file_pages
"""
_PROCESSES = """
    arch_prctl capget capset execve execveat exit exit_group fork get_robust_list get_thread_area getcpu getegid geteuid getgid
    getgroups getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid gettid getuid
    ioprio_get ioprio_set landlock_add_rule landlock_create_ruleset landlock_restrict_self modify_ldt pidfd_open
    pidfd_send_signal prlimit64 process_vm_readv process_vm_writev ptrace rseq sched_get_priority_max
    sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
    sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield set_robust_list set_thread_area
    set_tid_address setfsgid setfsuid setgid setgroups setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid
    setuid sysinfo times uname vfork wait4 waitid
"""
_SIGNALS = """
    kill restart_syscall rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
    rt_tgsigqueueinfo sigaltstack signalfd signalfd4 tgkill tkill
"""
_TIME = """
    alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time timer_create timer_delete
    timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime
"""
_WAITING = """
    epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 futex futex_requeue futex_wait
    futex_waitv futex_wake pause pipe pipe2 poll ppoll pselect6 select
"""
_BETWEEN_PROCESSES = """
    mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop
    semtimedop shmat shmctl shmdt shmget
"""
_SOCKETS = """
    accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg sendmsg sendto
    shutdown
"""

ALLOWED = tuple(
    " ".join(
        (_FILES, _WATCHED_FILES, _MEMORY, _PROCESSES, _SIGNALS, _TIME, _WAITING, _BETWEEN_PROCESSES, _SOCKETS)
    ).split()
)
"""Allowed with any arguments. For calls that depend on their arguments, see `_with_conditions`."""

_MOUNTS = """
    mount umount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr
    swapon swapoff quotactl quotactl_fd open_by_handle_at
"""
_NAMESPACES = "setns unshare sethostname setdomainname"
_KERNEL = """
    init_module finit_module delete_module kexec_load kexec_file_load reboot acct syslog bpf perf_event_open
    userfaultfd io_uring_setup io_uring_enter io_uring_register iopl ioperm lookup_dcookie nfsservctl vhangup
    fanotify_init fanotify_mark kcmp process_madvise pidfd_getfd memfd_secret
"""
_KEYRINGS = "add_key request_key keyctl"
_CLOCKS = "settimeofday clock_settime clock_adjtime adjtimex"
_NUMA = "mbind migrate_pages move_pages set_mempolicy set_mempolicy_home_node"
_ASYNCHRONOUS = "io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents"

DENIED = tuple(" ".join((_MOUNTS, _NAMESPACES, _KERNEL, _KEYRINGS, _CLOCKS, _NUMA, _ASYNCHRONOUS)).split())
"""These fail with EPERM, as they do without permission. All calls that are not listed fail with ENOSYS, as on a
kernel without them, so that the C library uses other ones.
"""

_ATTRIBUTES = ("setxattr", "lsetxattr", "fsetxattr")
"""Extended attributes are refused as on a file system without them: the memory of access lists on a tmpfs is charged to
no one.
"""
_NEW_NAMESPACES = 0x7E020000
"""Every flag of `clone` that makes a namespace."""
_SAME_FILES, _THREAD = 0x400, 0x10000
"""CLONE_FILES is for threads only: the locks of another process with the same files stay when it ends, and no list of
locks shows them any more.
"""
_OWN_FILTER = 22
"""PR_SET_SECCOMP of `prctl`. As the call `seccomp`, it is refused as on a kernel without filters: the compiled ones of the
whole host share one limit.
"""
_LINE_DISCIPLINE = 0x5423
"""TIOCSETD of `ioctl`."""
_SOCKET_COMMANDS = (0x8940, 0x8941, 0x8980, 0x8981, 0x8982, 0x8983, 0x89A0, 0x89A1)
"""Of `ioctl`, too: SIOCGIFBR, SIOCSIFBR (bridges), SIOCADDDLCI, SIOCDELDLCI (Frame Relay, before Linux 5.15), SIOCGIFVLAN,
SIOCSIFVLAN (VLANs), SIOCBRADDBR, SIOCBRDELBR (bridges).
"""
_REFUSED_COMMANDS: Mapping[int, int] = {_LINE_DISCIPLINE: errno.EINVAL} | dict.fromkeys(_SOCKET_COMMANDS, errno.ENOTTY)
"""The error of each command for which the host would load a module before it asks for any right: what a kernel says that lacks
the line discipline, or does not know the command. Cells refuse the same (`rollout_tasks.cells.seccomp`).
"""
_32_BITS = 0xFFFFFFFF
_HUGE_PAGES, _HUGE_PAGES_OF_FILE = 0x40000, 0x4
"""MAP_HUGETLB and MFD_HUGETLB: pages that the host has reserved for certain programs."""
_LOCKS_OF_OPEN_FILES = 0x20
"""The commands of `fcntl` for locks without an owning process (F_OFD_SETLK and similar, 36 to 38); only these three
have this bit. The kernel does not say which desktop has such a lock, so they cannot be counted.
"""
_PERSONALITIES = (0, 0x8, 0x20000, 0x20008, 0x40000, 0xFFFFFFFF)
"""Linux, 32-bit or not; without address randomisation, which debuggers ask for; and the query for the current value."""
_NETLINK = 16
_UNIX, _IPV4, _IPV6 = 1, 2, 10
"""The other address families. Vsock (40) bypasses the network namespace and reaches the hypervisor."""
_SOCKET_TYPE = 0xF
"""The bits of a socket's type; the others are flags."""
_STREAM, _DATAGRAM, _RAW = 1, 2, 3
_PROTOCOLS = {
    (_IPV4, _STREAM): (0, 6),
    (_IPV4, _DATAGRAM): (0, 17, 1),
    (_IPV6, _STREAM): (0, 6),
    (_IPV6, _DATAGRAM): (0, 17, 58),
}
"""TCP, UDP, ping. For a protocol that the kernel does not know for a type, the host would look for a module to load."""
_NETLINK_PROTOCOLS = (0, 15)
"""Routes, and device events."""
_OF_SOCKETS = 1
"""SOL_SOCKET."""
_OF_PROTOCOLS = (0, 17, 41, 58, 255, 270)
"""IPv4, UDP, IPv6, ICMPv6, raw, netlink: all their options."""
_TCP = 6
_KEYS_OF_TCP = (14, 32, 38, 39, 40, 41, 42, 43)
"""TCP_MD5SIG, TCP_AO_ADD_KEY and similar: the memory of these keys is charged to no one."""
_TCP_OPTIONS = [option for option in range(1, 46) if option not in _KEYS_OF_TCP]
_OPTIONS = range(1, 84)
"""Of SOL_SOCKET, up to SO_INQ. The filter lists allowed values, not forbidden ones: the kernel reads 32 bits of such an
argument, this filter 64, so setting a higher bit would bypass a list of forbidden values.
"""
_RECEIVED = 8
"""SO_RCVBUF: the size of the receive buffer. It stays unchanged, as where the host allows no more: data that waits in
connections that were not accepted, and in netlink sockets, is charged to no one.
"""
_SOCKET_FILTERS = (26, 50, 51, 52)
"""SO_ATTACH_FILTER and similar: programs in the kernel, which share one limit on the host."""


def profile(machine: str | None = None) -> dict[str, Any] | None:
    """Returns the profile for a machine type, by default this machine's; None for an unknown type."""
    architecture = ARCHITECTURES.get(machine or platform.machine())
    if architecture is None:
        return None
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _ENOSYS,
        "architectures": [architecture],
        "syscalls": [_allowed(list(ALLOWED)), _refused(list(DENIED), _EPERM), *_with_conditions()],
    }


def _with_conditions() -> list[dict[str, Any]]:
    """Returns rules that check arguments. Rules of one call are alternatives; without a match, it fails with ENOSYS."""
    of_process = _argument(0, "MASKED_EQ", _NEW_NAMESPACES | _SAME_FILES, 0)
    of_thread = _argument(0, "MASKED_EQ", _NEW_NAMESPACES | _SAME_FILES | _THREAD, _SAME_FILES | _THREAD)
    new_namespaces = [flag for bit in range(32) if (flag := 1 << bit) & _NEW_NAMESPACES]
    return [
        # clone3 hides its flags from filters: with ENOSYS, the C library falls back to clone.
        _allowed(["clone"], of_process),
        _allowed(["clone"], of_thread),
        _refused(["clone"], _EPERM, _argument(0, "MASKED_EQ", _SAME_FILES | _THREAD, _SAME_FILES)),
        *(_refused(["clone"], _EPERM, _argument(0, "MASKED_EQ", flag, flag)) for flag in new_namespaces),
        *_without_flag("mmap", 3, _HUGE_PAGES),
        *_without_flag("memfd_create", 1, _HUGE_PAGES_OF_FILE),
        *_without_flag("fcntl", 1, _LOCKS_OF_OPEN_FILES, errno=_EINVAL),
        *_but_these("prctl", 0, {_OWN_FILTER: _EINVAL}),
        *_but_these("ioctl", 1, _REFUSED_COMMANDS),
        _refused(list(_ATTRIBUTES), _ENOTSUP),
        *(_allowed(["personality"], _argument(0, "EQ", value)) for value in _PERSONALITIES),
        *_sockets(),
        *_socket_options(),
    ]


def _without_flag(name: str, argument: int, flag: int, *, errno: int = _EPERM) -> list[dict[str, Any]]:
    return [
        _allowed([name], _argument(argument, "MASKED_EQ", flag, 0)),
        _refused([name], errno, _argument(argument, "MASKED_EQ", flag, flag)),
    ]


def _but_these(name: str, argument: int, refused: Mapping[int, int]) -> list[dict[str, Any]]:
    """Allows a call unless its argument, of which the kernel reads 32 bits, is one of these values; each has its error."""
    return [
        *(_allowed([name], _argument(argument, "MASKED_EQ", mask, bits)) for mask, bits in _others(refused)),
        *(_refused([name], errno, _argument(argument, "MASKED_EQ", _32_BITS, one)) for one, errno in refused.items()),
    ]


def _others(values: Collection[int]) -> list[tuple[int, int]]:
    """Returns all other numbers of 32 bits, as masks and what the masked numbers are: the upper bits that no value has."""
    found = set()
    for value in values:
        for lowest in range(32):
            mask = _32_BITS >> lowest << lowest
            bits = (value ^ 1 << lowest) & mask
            if all(one & mask != bits for one in values):
                found.add((mask, bits))
    return sorted(found)


def _sockets() -> list[dict[str, Any]]:
    others = [family for family in range(_NETLINK) if family not in (_UNIX, _IPV4, _IPV6)]
    strange = [protocol for protocol in range(max(_NETLINK_PROTOCOLS)) if protocol not in _NETLINK_PROTOCOLS]
    netlink = _argument(0, "EQ", _NETLINK)
    return [
        _allowed(["socket", "socketpair"], _argument(0, "EQ", _UNIX)),
        *_internet_sockets(),
        *(_allowed(["socket"], netlink, _argument(2, "EQ", protocol)) for protocol in _NETLINK_PROTOCOLS),
        *(_refused(["socket"], _EPROTONOSUPPORT, netlink, _argument(2, "EQ", protocol)) for protocol in strange),
        _refused(["socket"], _EPROTONOSUPPORT, netlink, _argument(2, "GT", max(_NETLINK_PROTOCOLS))),
        *(_refused(["socket", "socketpair"], _EAFNOSUPPORT, _argument(0, "EQ", family)) for family in others),
        _refused(["socket", "socketpair"], _EAFNOSUPPORT, _argument(0, "GT", _NETLINK)),
    ]


def _internet_sockets() -> list[dict[str, Any]]:
    rules = []
    for family in (_IPV4, _IPV6):
        of_family = _argument(0, "EQ", family)
        rules += [
            _refused(["socketpair"], _ENOTSUP, of_family),
            _refused(["socket"], _EPERM, of_family, _argument(1, "MASKED_EQ", _SOCKET_TYPE, _RAW)),
        ]
        for kind in (_STREAM, _DATAGRAM):
            of_kind = _argument(1, "MASKED_EQ", _SOCKET_TYPE, kind)
            known = _PROTOCOLS[family, kind]
            rules += [_allowed(["socket"], of_family, of_kind, _argument(2, "EQ", protocol)) for protocol in known]
            rules += [_refused(["socket"], _EPROTONOSUPPORT, of_family, of_kind, _argument(2, "GT", max(known)))]
    return rules


def _socket_options() -> list[dict[str, Any]]:
    name, of_sockets = ["setsockopt"], _argument(1, "EQ", _OF_SOCKETS)
    harmless = [option for option in _OPTIONS if option not in (_RECEIVED, *_SOCKET_FILTERS)]
    return [
        *(_allowed(name, _argument(1, "EQ", level)) for level in _OF_PROTOCOLS),
        *(_allowed(name, _argument(1, "EQ", _TCP), _argument(2, "EQ", option)) for option in _TCP_OPTIONS),
        *(_refused(name, _EPERM, _argument(1, "EQ", _TCP), _argument(2, "EQ", option)) for option in _KEYS_OF_TCP),
        *(_allowed(name, of_sockets, _argument(2, "EQ", option)) for option in harmless),
        *(_refused(name, _EPERM, of_sockets, _argument(2, "EQ", option)) for option in _SOCKET_FILTERS),
        _refused(name, _NO_ERROR, of_sockets, _argument(2, "EQ", _RECEIVED)),
    ]


def _argument(index: int, comparison: str, value: int, second: int | None = None) -> dict[str, Any]:
    condition: dict[str, Any] = {"index": index, "value": value, "op": f"SCMP_CMP_{comparison}"}
    return condition if second is None else condition | {"valueTwo": second}


def _allowed(names: list[str], *conditions: dict[str, Any]) -> dict[str, Any]:
    rule: dict[str, Any] = {"names": names, "action": "SCMP_ACT_ALLOW"}
    return rule | {"args": list(conditions)} if conditions else rule


def _refused(names: list[str], errno: int, *conditions: dict[str, Any]) -> dict[str, Any]:
    rule: dict[str, Any] = {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": errno}
    return rule | {"args": list(conditions)} if conditions else rule
