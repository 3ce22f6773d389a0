"""Leads the traffic of a network namespace to a relay: all of it arrives at sockets that the relay listens on.

The namespace gets an interface with the addresses of QEMU's user network, which is connected to nothing. The kernel
sends each connection and each DNS question to the sockets, and rejects everything else. Removing the rules, which root
in the namespace could do if it had the right, leaves the namespace without a network.
"""

from __future__ import annotations

import shutil
import socket
import subprocess

from vm_pool.egress.relay import Listeners
from vm_pool.errors import ProviderError
from vm_pool.namespaces import inside

GUEST_ADDRESS, GATEWAY, NAME_SERVER = "10.0.2.15", "10.0.2.2", "10.0.2.3"
COMMANDS = {"ip": "iproute2", "nft": "nftables", "nsenter": "util-linux"}
SETUP_SECONDS = 20.0
_LINKS = f"""\
link set lo up
link add eth0 type veth peer name eth0-end
address add {GUEST_ADDRESS}/24 dev eth0
link set eth0 up
link set eth0-end up
route add default via {GATEWAY}
"""
_RULES = """\
table inet way-out
delete table inet way-out
table inet way-out {{
    chain led {{
        type nat hook output priority -100;
        ip daddr {{ 127.0.0.0/8, {guest_address} }} return
        ip6 daddr ::1 return
        udp dport 53 redirect to :{names}
        meta l4proto tcp redirect to :{streams}
    }}
    chain refused {{
        type filter hook output priority filter;
        ip daddr {{ 127.0.0.0/8, {guest_address} }} accept
        ip6 daddr ::1 accept
        ip saddr 127.0.0.0/8 accept
        reject
    }}
}}
"""


def check_commands() -> None:
    """Makes sure that `make_exit` can work.

    Raises:
        ProviderError: A command is missing (the message says which package has it), or the kernel refuses the rules.
    """
    for command, package in COMMANDS.items():
        if shutil.which(command) is None:
            raise ProviderError(f"a network for guests needs the command {command}: apt-get install {package}")
    try:
        _run(["unshare", "--net"], ["nft", "-f", "-"], _RULES.format(streams=1, names=1, guest_address=GUEST_ADDRESS))
    except RuntimeError as error:
        raise ProviderError(f"{error}; it needs a kernel with nftables, and root's rights over networks") from error


def make_interface(namespace: int) -> None:
    """Gives a network namespace an interface connected to nothing; without an exit, nothing that is sent arrives.

    Args:
        namespace: A file descriptor of it.

    Raises:
        RuntimeError: The kernel refuses it; the message says why.
    """
    _run_inside(namespace, ["ip", "-batch", "-"], _LINKS)


def make_exit(namespace: int) -> Listeners:
    """Leads everything that a network namespace sends to new sockets, and no longer to those of an earlier exit.

    Args:
        namespace: A file descriptor of it; it has its interface.

    Raises:
        OSError: The namespace cannot be entered, or the sockets cannot be made.
        RuntimeError: The kernel refuses the rules; the message says why.
    """
    listeners = inside(namespace, _listeners)
    try:
        streams, names = (some[0].getsockname()[1] for some in (listeners.streams, listeners.datagrams))
        _run_inside(
            namespace, ["nft", "-f", "-"], _RULES.format(streams=streams, names=names, guest_address=GUEST_ADDRESS)
        )
    except BaseException:
        listeners.close()
        raise
    return listeners


def _listeners() -> Listeners:
    """Makes listeners on the same ports for IPv4 and IPv6, as the rules name one port."""
    made: list[socket.socket] = []

    def bound(kind: socket.SocketKind) -> tuple[socket.socket, ...]:
        port = 0
        some = []
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            one = socket.socket(family, kind)
            made.append(one)
            one.setblocking(False)
            one.bind((address, port))
            port = one.getsockname()[1]
            if kind is socket.SOCK_STREAM:
                one.listen(128)
            some.append(one)
        return tuple(some)

    try:
        return Listeners(bound(socket.SOCK_STREAM), bound(socket.SOCK_DGRAM))
    except BaseException:
        for one in made:
            one.close()
        raise


def _run_inside(namespace: int, command: list[str], given: str) -> None:
    _run(["nsenter", f"--net=/proc/self/fd/{namespace}"], command, given, namespace)


def _run(before: list[str], command: list[str], given: str, *descriptors: int) -> None:
    cannot = f"a guest's network cannot be made: {command[0]}"
    try:
        done = subprocess.run(  # noqa: S603
            [*before, *command],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=SETUP_SECONDS,
            pass_fds=descriptors,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{cannot}: nothing within {SETUP_SECONDS:.0f} s") from error
    if done.returncode != 0:
        raise RuntimeError(f"{cannot}: {' '.join(done.stderr.split())[:300] or f'exit status {done.returncode}'}")
