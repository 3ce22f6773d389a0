"""A process's own folder for temporary files goes with it, without a word, whatever else is cleaned up at its end."""

from __future__ import annotations

import os
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


def test_what_a_process_left_that_was_killed_before_it_had_its_name_is_removed_later(tmp_path: Path) -> None:
    (tmp_path / ".test-killed").mkdir()
    os.utime(tmp_path / ".test-killed", (1, 1))
    (tmp_path / ".test-just-being-made").mkdir()
    environment = {"TMPDIR": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, timeout=60, check=True)
    assert [path.name for path in tmp_path.iterdir()] == [".test-just-being-made"]
