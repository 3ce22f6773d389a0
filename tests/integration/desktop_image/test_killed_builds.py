"""A killed build leaves nothing behind that goes on."""

from __future__ import annotations

import subprocess
from pathlib import Path

from desktop_image import namespace


def test_nothing_is_run_as_a_namespaces_root_for_a_process_that_was_killed_before_it_said_so(tmp_path: Path) -> None:
    made = tmp_path / "made"
    script = ["sh", "-c", namespace._AS_ITS_ROOT, "sh", "touch", str(made)]

    subprocess.run(script, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)

    assert not made.exists()
