"""Importing desktop-env: what its import must not do to a worker's process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY

IMPORT = """
import os, signal, sys, logging
handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
root_handlers = list(logging.getLogger().handlers)
from rollout_tasks.environments.osworld import desktop_env_import
module = desktop_env_import.desktop_env()
assert module.metrics and module.getters and module.DesktopEnv
assert "SECRET_FROM_FILE" not in os.environ
assert {number: signal.getsignal(number) for number in handlers} == handlers
assert logging.getLogger().handlers == root_handlers
assert "torch" not in sys.modules
assert ("easyocr" in sys.modules) == desktop_env_import.has_ocr()
import socket
socket.socket.connect = None
from desktop_env.evaluators.metrics.utils import compare_urls
assert compare_urls("https://www.example.co.uk/a", "https://example.com/a")
assert not compare_urls("https://www.example.co.uk/a", "https://other.co.uk/a")
from desktop_env.evaluators.metrics.basic_os import check_gnome_favorite_apps
try: check_gnome_favorite_apps("__import__('os')._exit(3)", {"expected": []})
except ValueError: pass
"""


def test_importing_it_is_silent_and_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SECRET_FROM_FILE=1\n")

    done = subprocess.run(
        [sys.executable, "-c", IMPORT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [file.name for file in tmp_path.iterdir()] == [".env"]


def test_a_missing_package_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    script = (
        "import sys, importlib.abc\n"
        "class Hide(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.split('.')[0] == 'desktop_env': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "from rollout_tasks.environments.osworld import desktop_env_import\n"
        "try: desktop_env_import.desktop_env()\n"
        "except RuntimeError as error: print(error)\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=REPOSITORY)

    assert done.stdout == (
        "desktops need the package desktop-env, which is not installed:"
        " uv pip install --require-hashes -r requirements-osworld.lock\n"
    ), done.stderr
