"""Which files belong to a module, and which tests to its place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Module:
    """One part of the program that defects are planted in."""

    files: tuple[str, ...]
    """Glob patterns in the repository."""
    tests: tuple[tuple[str, ...], ...]
    """Arguments of pytest, one group after the other: the fast ones first."""
    without: tuple[str, ...] = ()
    """Files that the patterns find and that do not belong here."""

    def paths(self, root: Path) -> list[Path]:
        """Returns the module's files."""
        without = {root / name for name in self.without}
        return sorted({path for pattern in self.files for path in root.glob(pattern)} - without)


_POOL_TESTS = (
    ("tests/unit/vm_pool", "--ignore=tests/unit/vm_pool/test_pool_model.py"),
    tuple(
        f"tests/integration/vm_pool/test_{name}.py"
        for name in ("pool_leases", "pool_queue", "pool_coroutines", "pool_properties", "lost_writes")
    ),
    tuple(
        f"tests/integration/vm_pool/test_{name}.py"
        for name in (
            "pool_host",
            "killed_processes",
            "gate",
            "gated_host",
            "pool_commands",
            "pool_faults",
            "egress_relay",
            "images",
        )
    ),
    ("tests/hostile/test_gate_neighbours.py",),
)

MODULES = {
    "vm_pool": Module(("vm_pool/*.py",), _POOL_TESTS, without=("vm_pool/contracts.py",)),
    "vm_pool/lua": Module(("vm_pool/lua/*.lua",), (("tests/unit/vm_pool/test_script_changes.py",), *_POOL_TESTS)),
    "runs": Module(
        ("rollout_tasks/runs/*.py", "rollout_tasks/runs/lua/*.lua"),
        (
            ("tests/unit/runs", "--ignore=tests/unit/runs/test_run_model.py"),
            (
                "tests/integration/runs",
                "tests/integration/execution/test_rollout.py",
                "tests/unit/execution",
                "tests/unit/cli/test_program.py",
            ),
        ),
    ),
    "embedded": Module(("rollout_tasks/embedded/*.py",), (("tests/unit/embedded", "tests/chaos/test_embedded.py"),)),
    "execution": Module(
        ("rollout_tasks/execution/*.py", "rollout_tasks/interruption.py", "rollout_tasks/errors.py"),
        (
            ("tests/unit/execution",),
            ("tests/integration/execution/test_heartbeat.py", "tests/integration/execution/test_rollout.py"),
        ),
    ),
    "sandbox": Module(
        ("rollout_tasks/environments/sandbox/*.py", "rollout_tasks/environments/py.py"),
        (
            ("tests/unit/environments/sandbox", "tests/unit/cells"),
            ("tests/integration/environments/test_py_environment.py",),
        ),
    ),
    "cells": Module(
        ("rollout_tasks/cells/*.py", "rollout_tasks/environments/osworld/cell_*.py"),
        (
            (
                *("tests/unit/cells", "tests/integration/cells", "tests/hostile/test_cells.py"),
                "--ignore=tests/integration/cells/test_users_without_rights.py",  # wants an environment beside the tree
            ),
            ("tests/hostile/test_forged_answers.py",),
        ),
    ),
    "extensions": Module(
        ("vm_pool/contracts.py", "rollout_tasks/registry.py"),
        (
            tuple(
                f"tests/unit/test_{name}.py"
                for name in ("extension_contracts", "right_extensions", "extension_examples", "registry")
            ),
        ),
    ),
    "scoring": Module(
        ("benchmark/*.py",),
        (("tests/unit/benchmark",), ("tests/acceptance/test_gsm8k.py",)),
    ),
    "osworld": Module(
        ("rollout_tasks/environments/osworld/*.py", "rollout_tasks/environments/osworld/action_spaces/*.py"),
        (("tests/unit/environments/osworld",), ("tests/integration/environments/osworld",)),
        without=tuple(f"rollout_tasks/environments/osworld/cell_{name}.py" for name in ("service", "session")),
    ),
}
"""By the name that the command takes."""
