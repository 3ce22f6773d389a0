"""The session's supervisor: what cannot be started again is tried again, and everything else goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.virtual_machines import wait_until

SESSION = """
import sys
from desktop_image.session.supervisor import Service, Supervisor

supervisor = Supervisor()
for name in ("gone", "steady"):
    supervisor.start(Service(name, (f"{sys.argv[1]}/{name}",), {"PATH": "/usr/bin:/bin"}, folder=sys.argv[1]))
sys.exit(supervisor.run())
"""


def program(path: Path, *lines: str) -> None:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


def test_a_program_that_was_removed_ends_no_session(tmp_path: Path) -> None:
    program(tmp_path / "gone", 'rm "$0"')
    program(tmp_path / "steady", "sleep 0.1", "echo once more >> steps")
    with (
        (tmp_path / "said").open("w") as said,
        subprocess.Popen([sys.executable, "-c", SESSION, str(tmp_path)], stderr=said) as session,
    ):
        steps = tmp_path / "steps"
        wait_until(lambda: steps.exists() and len(steps.read_text().splitlines()) >= 3)
        program(tmp_path / "gone", "echo back >> back")
        wait_until((tmp_path / "back").exists)
        session.send_signal(signal.SIGTERM)
        assert session.wait(timeout=20) == 0

    words = (tmp_path / "said").read_text()
    assert "guest session: gone ended (0); starting it again" in words
    assert "guest session: gone cannot be started: No such file or directory; starting it again" in words
