"""A process's own folder for temporary files goes with it, without a word, whatever else is cleaned up at its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY

PROGRAM = """
import multiprocessing.util, sys, tempfile
from rollout_tasks.temporary_files import use_own_folder
use_own_folder("test-")
print(tempfile.gettempdir())
multiprocessing.util.get_temp_dir()
"""


def test_it_is_removed_after_what_multiprocessing_has_in_it(tmp_path: Path) -> None:
    environment = {"TMPDIR": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert Path(done.stdout.strip()).parent == tmp_path
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []
