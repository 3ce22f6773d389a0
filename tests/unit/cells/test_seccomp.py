"""The filter, run here as the kernel runs it, and its numbers beside the kernel's headers."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection
from pathlib import Path

import pytest

from rollout_tasks.cells import seccomp
from rollout_tasks.cells.system_calls import ALONE, NUMBERS, PROCESSES, SOCKETS
from vm_pool.providers.local import seccomp as desktops

ALLOW, KILL, EPERM, ENOSYS, EAFNOSUPPORT = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026, 0x00050061
EINVAL, ENOTTY, EPROTONOSUPPORT = 0x00050016, 0x00050019, 0x0005005D
SUCCESS = 0x00050000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
COLUMNS = {"x86_64": 0, "aarch64": 1}
SETS = [ALONE, ALONE | PROCESSES, ALONE | PROCESSES | SOCKETS, frozenset({"read"}), frozenset[str]()]


def verdict(program: bytes, number: int, architecture: int, *arguments: int) -> int:
    """Runs the filter as the kernel does."""
    lines = [struct.unpack_from("<HBBI", program, offset) for offset in range(0, len(program), 8)]
    accumulator = position = 0
    call = {0: number, 4: architecture, 16: 0, 24: 0, 32: 0, 40: 0}
    call |= {16 + 8 * index: argument & 0xFFFFFFFF for index, argument in enumerate(arguments)}
    while True:
        code, if_true, if_false, value = lines[position]
        position += 1
        if code == 0x20:
            accumulator = call[value]
        elif code == 0x54:
            accumulator &= value
        elif code == 0x06:
            return int(value)
        else:
            holds = {
                0x15: accumulator == value,
                0x25: accumulator > value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[code]
            position += if_true if holds else if_false


def numbers_of(names: Collection[str], machine: str) -> set[int]:
    return {number for name in names if (number := NUMBERS[name][COLUMNS[machine]]) is not None}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("allowed", SETS, ids=len)
def test_exactly_what_is_on_the_list_is_allowed(machine: str, allowed: frozenset[str]) -> None:
    program, architecture = seccomp.program(allowed, machine), ARCHITECTURES[machine]
    plain = numbers_of(allowed - {"clone", "socket", "socketpair"}, machine)  # fcntl(0, F_DUPFD) is allowed

    let_through = {number for number in range(700) if verdict(program, number, architecture) == ALLOW}

    assert let_through - numbers_of({"clone"}, machine) == plain
    assert len(program) // 8 < 4096  # what the kernel takes at most
    for number in plain:
        assert verdict(program, number, 0x40000003) == KILL
        assert verdict(program, 0x40000000 + number, architecture) == EPERM


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_processes_are_made_without_namespaces(machine: str) -> None:
    program, architecture = seccomp.program(ALONE | PROCESSES, machine), ARCHITECTURES[machine]
    clone = NUMBERS["clone"][COLUMNS[machine]]
    assert clone is not None
    namespaces = [0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]

    assert verdict(program, clone, architecture, 0x1200011) == ALLOW  # as fork does
    assert verdict(program, clone, architecture, 0x3D0F00) == ALLOW  # as a thread is made
    assert [verdict(program, clone, architecture, 0x11 | flag) for flag in namespaces] == [EPERM] * len(namespaces)
    assert verdict(program, 435, architecture) == ENOSYS


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(("name", "families"), [("socket", {1, 2, 10, 16}), ("socketpair", {1})])
def test_sockets_are_of_families_that_a_namespace_holds(name: str, families: set[int], machine: str) -> None:
    """Pairs are Unix sockets only: for any other family, the host would look for a module of the pair's protocol."""
    program, architecture = seccomp.program(SOCKETS, machine), ARCHITECTURES[machine]
    number = NUMBERS[name][COLUMNS[machine]]
    assert number is not None

    allowed = {
        family
        for family in range(60)
        for kind in range(16)
        for protocol in (0, 4, 132)
        if verdict(program, number, architecture, family, kind, protocol) == ALLOW
    }

    assert allowed == families
    assert verdict(program, number, architecture, 40) == EAFNOSUPPORT


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_no_socket_has_the_host_load_a_module(machine: str) -> None:
    """As it does for protocols that it does not know, and for known ones of another type."""
    program, architecture = seccomp.program(SOCKETS, machine), ARCHITECTURES[machine]
    number = NUMBERS["socket"][COLUMNS[machine]]
    assert number is not None
    for family in (2, 10):
        allowed = {
            (kind, protocol)
            for kind in range(16)
            for protocol in range(300)
            if verdict(program, number, architecture, family, kind, protocol) == ALLOW
        }
        assert allowed == {(1, 0), (1, 6), (2, 0), (2, 17)}
        assert verdict(program, number, architecture, family, 1 | 0x80800, 6) == ALLOW  # closed at exec, non-blocking
        assert verdict(program, number, architecture, family, 1, 132) == EPROTONOSUPPORT
    assert [verdict(program, number, architecture, 16, 3, protocol) for protocol in (0, 4)] == [ALLOW, EPROTONOSUPPORT]


@pytest.mark.parametrize("machine", ["x86_64", pytest.param("aarch64", marks=pytest.mark.slow)])
def test_no_command_to_a_device_has_the_host_load_a_module(machine: str) -> None:
    """Those for line disciplines, bridges, Frame Relay and VLANs do, before the kernel asks for any right."""
    program, architecture = seccomp.program(ALONE, machine), ARCHITECTURES[machine]
    number = NUMBERS["ioctl"][COLUMNS[machine]]
    assert number is not None

    refused = {command for command in range(1 << 16) if verdict(program, number, architecture, 3, command) != ALLOW}

    assert refused == {0x5423, 0x8940, 0x8941, 0x8980, 0x8981, 0x8982, 0x8983, 0x89A0, 0x89A1}
    assert {verdict(program, number, architecture, 3, command) for command in refused - {0x5423}} == {ENOTTY}
    assert verdict(program, number, architecture, 3, 0x5423) == EINVAL
    assert verdict(program, number, architecture, 3, (1 << 32) + 0x8982) == ENOTTY
    assert verdict(program, number, architecture, 3, (1 << 32) + 0x5423) == EINVAL


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_local_desktops_are_refused_the_same_commands(machine: str) -> None:
    program, number = seccomp.program(ALONE, machine), NUMBERS["ioctl"][COLUMNS[machine]]
    assert number is not None
    profile = desktops.profile(machine)
    assert profile is not None
    rules = [rule for rule in profile["syscalls"] if "ioctl" in rule["names"]]

    def of_desktops(command: int) -> int:
        """The one answer that the rules give; the runtime joins them to a program."""
        [answer] = {
            ALLOW if rule["action"] == "SCMP_ACT_ALLOW" else 0x00050000 + rule["errnoRet"]
            for rule in rules
            if all(command & test["value"] == test["valueTwo"] for test in rule["args"])
        }
        return answer

    for command in (*range(0x5400, 0x5500), *range(0x8900, 0x8A00), 0, 0x80045430, 0xFFFFFFFF):
        assert verdict(program, number, ARCHITECTURES[machine], 3, command) == of_desktops(command), hex(command)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_memory_is_private_or_a_files_and_has_no_huge_pages(machine: str) -> None:
    program, architecture = seccomp.program(ALONE, machine), ARCHITECTURES[machine]
    number = NUMBERS["mmap"][COLUMNS[machine]]
    assert number is not None
    shared, private, checked, fixed, anonymous, huge = 1, 2, 3, 0x10, 0x20, 0x40000

    def mapped(flags: int) -> int:
        return verdict(program, number, architecture, 0, 4096, 3, flags)

    for usual in (shared, shared | fixed, private, checked, private | fixed, private | anonymous | fixed | 0x20000):
        assert mapped(usual) == ALLOW
        assert mapped(usual | huge) == EPERM
    for refused in (shared | anonymous, shared | anonymous | fixed, (1 << 32) | shared | anonymous | 0x100000):
        assert mapped(refused) == EPERM


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_locks_of_files_seem_to_be_made_and_leases_are_refused(machine: str) -> None:
    program, architecture = seccomp.program(ALONE, machine), ARCHITECTURES[machine]
    number = NUMBERS["fcntl"][COLUMNS[machine]]
    assert number is not None

    allowed = {command for command in range(2000) if verdict(program, number, architecture, 3, command) == ALLOW}

    assert allowed == {*range(6), 1030, 1032, 1033, 1034}
    for lock in (6, 7, (1 << 32) + 6):
        assert verdict(program, number, architecture, 3, lock) == SUCCESS
    assert verdict(program, number, architecture, 3, 1024) == EINVAL
    assert verdict(program, number, architecture, 3, (1 << 32) + 1024) == EINVAL


@pytest.mark.parametrize(
    ("column", "header", "pattern"),
    [
        (0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", r"#define __NR_(\w+) (\d+)"),
        (1, "/usr/include/asm-generic/unistd.h", r"#define __NR(?:3264)?_(\w+) (\d+)"),
    ],
)
def test_the_numbers_are_the_kernels(column: int, header: str, pattern: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"no kernel header {header}")
    numbers = {name: int(number) for name, number in re.findall(pattern, Path(header).read_text())}
    if column == 1:
        numbers["newfstatat"] = numbers["fstatat"]

    assert {name: row[column] for name, row in NUMBERS.items()} == {name: numbers.get(name) for name in NUMBERS}


def test_every_name_has_a_number() -> None:
    assert NUMBERS.keys() >= ALONE | PROCESSES | SOCKETS


def test_other_machines_have_no_table() -> None:
    assert not seccomp.supported("riscv64")
    assert seccomp.supported("aarch64")
