"""The bench of leases where what it compares with is missing."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import REPOSITORY

WITHOUT_PEER = """
import runpy, sys
sys.modules["redis_lock"] = None
runpy.run_path("scripts/bench/leases.py", run_name="__main__")
"""


def test_a_missing_peer_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PEER], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 1
    assert done.stderr == (
        "error: python-redis-lock, which leases are compared with, is not installed: it is in requirements-dev.lock\n"
    )
