"""How much memory is free where cgroups limit it, in either version and in containers."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from rollout_tasks.free_memory import free_memory

MIB = 1 << 20


def cgroup(folder: Path, limit: str, used: int, cached: int = 0, *, version: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    entry = "inactive_file" if version == 2 else "total_inactive_file"
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{entry} {cached}\n")


@pytest.fixture
def process(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    (tmp_path / "fs").mkdir()
    return tmp_path / "fs"


def test_the_least_that_any_limit_above_leaves_is_free(process: Path, mounted: Path) -> None:
    process.write_text("0::/slurm/job_7/step_0\n")
    cgroup(mounted / "slurm", "max", 900 * MIB)
    cgroup(mounted / "slurm/job_7", str(100 * MIB), 70 * MIB, 20 * MIB)
    cgroup(mounted / "slurm/job_7/step_0", str(90 * MIB), 10 * MIB)

    assert free_memory(process, mounted) == 50 * MIB


def test_in_a_container_the_top_is_its_own(process: Path, mounted: Path) -> None:
    process.write_text("12:cpu,cpuacct:/docker/abc\n5:memory:/docker/abc\n0::/docker/abc\n")
    cgroup(mounted / "memory", str(64 * MIB), 24 * MIB, version=1)

    assert free_memory(process, mounted) == 40 * MIB


def test_a_limit_that_is_used_up_leaves_nothing(process: Path, mounted: Path) -> None:
    process.write_text("0::/\n")
    cgroup(mounted, str(10 * MIB), 11 * MIB)

    assert free_memory(process, mounted) == 0


@pytest.mark.parametrize("said", [None, "", "0::/\n", "4:memory:/a\n0::/b\n", "1:name=systemd:/x:y\n"])
def test_without_limits_it_is_the_machines(process: Path, mounted: Path, said: str | None) -> None:
    if said is not None:
        process.write_text(said)
    cgroup(mounted / "memory/a", str(1 << 62), 5, version=1)

    assert free_memory(process, mounted) == pytest.approx(psutil.virtual_memory().available, rel=0.5)


def test_this_process_has_some() -> None:
    assert 0 < free_memory() <= psutil.virtual_memory().total
