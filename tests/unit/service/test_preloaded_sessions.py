"""What the process from which sessions are forked has loaded for them."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import REPOSITORY

PLAY = """
import socket, sys
from pathlib import Path
from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.service import session_process, session_spawner
from rollout_tasks.service.session_order import SessionOrder
from vm_pool.pool import VMPool
from rollout_tasks.redis_client import connect

session_spawner._preload(["simulated"])
before = set(sys.modules)
order = SessionOrder("s", Item(id="one", question="?"), RunConfig(), Path("/tmp"), 0, False)
SessionOrder.from_dict(order.as_dict())
try:
    VMPool(connect(tries=0, url="redis://localhost:1/0")).status()
except Exception as error:
    print(type(error).__name__)
print(sorted(set(sys.modules) - before))
"""


def test_a_session_imports_nothing_for_itself_before_it_has_its_desktop() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLAY], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["PoolUnreachable", "[]"]
