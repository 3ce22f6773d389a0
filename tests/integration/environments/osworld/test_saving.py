"""In a real desktop: the wait after an evaluator's keys ends when the program has done its work, and not before."""

from __future__ import annotations

import time

import pytest

from rollout_tasks.environments.osworld.pending_saves import AT_MOST_SECONDS, awaiting_saves
from tests.desktops import needs_local_desktops
from tests.integration.desktop_image.conftest import Desktop, desktop, library  # noqa: F401 (fixtures)

pytestmark = needs_local_desktops

KEYS = {"type": "execute", "parameters": {"command": ["python", "-c", "import pyautogui"]}}
WORK = """
import time
end = time.time() + 8
while time.time() < end:
    pass
open("/home/user/saved", "w").close()
"""

HELPER = """
import subprocess
subprocess.run(["/usr/bin/python3", "/home/user/helper.py"])
"""


def wait(desktop: Desktop) -> float:  # noqa: F811
    """Waits in the guest as an evaluation does; returns the seconds it took."""
    step = awaiting_saves({"evaluator": {"postconfig": [KEYS]}})["evaluator"]["postconfig"][1]
    desktop.shell(f"cat >/home/user/wait.py <<'END'\n{step['parameters']['command'][2]}\nEND")
    began = time.monotonic()
    desktop.shell("python3 /home/user/wait.py")
    return time.monotonic() - began


@pytest.mark.parametrize(
    "by",
    [
        pytest.param("itself", marks=pytest.mark.slow),
        "a helper",
        pytest.param("itself, beside one whose name is cut within a character", marks=pytest.mark.slow),
    ],
)
def test_a_program_at_work_is_waited_for(desktop: Desktop, by: str) -> None:  # noqa: F811
    """GIMP, for one, has plug-ins do its saving."""
    work = WORK
    if by == "a helper":
        desktop.shell(f"cat >/home/user/helper.py <<'END'\n{WORK}\nEND")
        work = HELPER
    if by.endswith("a character"):
        desktop.shell("cp /bin/sleep /home/user/abcdefghijklmnü")
        desktop.launch("/home/user/abcdefghijklmnü 60")
    desktop.shell("rm -f /home/user/saved; cp /usr/bin/python3 /home/user/soffice.bin")
    desktop.shell(f"cat >/home/user/work.py <<'END'\n{work}\nEND")
    desktop.launch("/home/user/soffice.bin /home/user/work.py")
    desktop.shell("timeout 20 sh -c 'until pgrep -x soffice.bin; do :; done'")

    assert "yes" not in desktop.shell("test -e /home/user/saved && echo yes")
    wait(desktop)

    assert desktop.shell("ls /home/user/saved").strip() == "/home/user/saved"


def test_what_a_program_waits_for_is_waited_for(desktop: Desktop) -> None:  # noqa: F811
    """On a busy machine the screen's server, or the window manager, waits for a processor while the program is idle."""
    desktop.shell(f"rm -f /home/user/saved; cat >/home/user/server.py <<'END'\n{WORK}\nEND")
    desktop.launch("/usr/bin/python3 /home/user/server.py")
    desktop.shell("timeout 20 sh -c 'until pgrep -f server[.]py; do :; done'")
    wait(desktop)
    assert desktop.shell("ls /home/user/saved").strip() == "/home/user/saved"


def test_an_idle_desktop_is_not_waited_for_in_vain(desktop: Desktop) -> None:  # noqa: F811
    took = wait(desktop)
    assert took < AT_MOST_SECONDS, f"it took {took:.1f} s"
