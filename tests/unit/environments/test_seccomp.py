from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from rollout_tasks.environments.sandbox import seccomp

ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
READ = {"x86_64": 0, "aarch64": 63}


def verdict(program: bytes, number: int, architecture: int) -> int:
    """Runs the filter as the kernel does."""
    lines = [struct.unpack_from("<HBBI", program, offset) for offset in range(0, len(program), 8)]
    accumulator = position = 0
    while True:
        code, if_true, if_false, value = lines[position]
        position += 1
        if code == 0x20:
            accumulator = {0: number, 4: architecture}[value]
        elif code == 0x06:
            return int(value)
        else:
            holds = accumulator == value if code == 0x15 else accumulator >= value
            position += if_true if holds else if_false


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_the_filter_decides_as_the_table_says(machine: str, column: int) -> None:
    program, architecture = seccomp.program(machine), ARCHITECTURES[machine]

    for name, numbers in seccomp.DENIED.items():
        if numbers[column] is not None:
            assert verdict(program, numbers[column] or 0, architecture) == EPERM, name
    assert verdict(program, 435, architecture) == ENOSYS
    assert verdict(program, READ[machine], architecture) == ALLOW
    assert verdict(program, READ[machine], 0x40000003) == KILL
    assert verdict(program, 0x40000000 + READ[machine], architecture) == EPERM


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

    assert {name: row[column] for name, row in seccomp.DENIED.items()} == {
        name: numbers.get(name) for name in seccomp.DENIED
    }


def test_other_machines_have_no_table() -> None:
    assert not seccomp.supported("riscv64")
    assert seccomp.supported("aarch64")
