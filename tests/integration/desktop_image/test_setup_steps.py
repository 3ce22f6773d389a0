"""The setup steps of the unmodified desktop-env, against the guest's server."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.desktop_image.conftest import Desktop

EMPTY_HISTORY = """
CREATE TABLE urls (
    id INTEGER PRIMARY KEY, url TEXT, title TEXT, visit_count INTEGER, typed_count INTEGER, last_visit_time INTEGER,
    hidden INTEGER
);
CREATE TABLE visits (
    id INTEGER PRIMARY KEY, url INTEGER, visit_time INTEGER, from_visit INTEGER, transition INTEGER, segment_id INTEGER,
    visit_duration INTEGER
);
"""
"""The columns of a Chromium history that are filled in."""


def test_a_terminal_is_activated_by_its_programs_name(setup: Any, desktop: Desktop) -> None:
    in_front = "wmctrl -xa gnome-terminal"
    setup.setup([
        {"type": "launch", "parameters": {"command": ["gnome-terminal"]}},
        {"type": "execute", "parameters": {"command": in_front, "shell": True, "until": {"returncode": 0}}},
        {"type": "launch", "parameters": {"command": ["gnome-calculator"]}},
        {"type": "activate_window", "parameters": {"window_name": "Calculator"}},
        {"type": "activate_window", "parameters": {"window_name": "Terminal"}},
    ])  # fmt: skip
    assert not [title for title in desktop.windows() if "terminal" in title.lower()]
    assert "Gnome-terminal" in desktop.shell("xprop -id $(xdotool getactivewindow) WM_CLASS")
    desktop.shell("wmctrl -xc gnome-terminal; wmctrl -c Calculator")


def test_of_two_alike_the_window_with_the_very_title_is_meant(setup: Any, desktop: Desktop) -> None:
    # A terminal's server that ends because its last window was closed answers for a window that it no longer opens.
    desktop.shell("pkill -x gnome-terminal-; while pgrep -x gnome-terminal- >/dev/null; do sleep 0.05; done")
    for title in ("Sheet", "Sheet 2"):
        desktop.launch(f"gnome-terminal --title='{title}' -- sleep 1000")
        desktop.shell(f"until wmctrl -l | grep -q ' {title}$'; do sleep 0.05; done")
    in_front = "xdotool getactivewindow getwindowname"
    for title in ("Sheet", "Sheet 2", "Sheet"):
        setup.setup([{"type": "activate_window", "parameters": {"window_name": title, "strict": True}}])
        assert desktop.shell(in_front).strip() == title
    setup.setup([{"type": "close_window", "parameters": {"window_name": "Sheet", "strict": True}}])
    assert [title for title in desktop.windows() if "Sheet" in title] == ["Sheet 2"]
    setup.setup([{"type": "close_window", "parameters": {"window_name": "Sheet"}}])
    assert not [title for title in desktop.windows() if "Sheet" in title]


def test_a_downloaded_file_arrives_whole(control: Any, setup: Any, cache: Path) -> None:
    import uuid

    url, content = "http://files.example/big.bin", bytes(range(256)) * 40_000
    (cache / f"{uuid.uuid5(uuid.NAMESPACE_URL, url)}_big.bin").write_bytes(content)
    setup.setup(
        [{"type": "download", "parameters": {"files": [{"url": url, "path": "/home/user/new/folder/big.bin"}]}}]
    )
    assert control.get_file("/home/user/new/folder/big.bin") == content


def test_a_command_and_a_pause_are_setup_steps(setup: Any, desktop: Desktop) -> None:
    began = time.monotonic()
    setup.setup([
        {"type": "command", "parameters": {"command": ["touch", "/home/user/commanded"]}},
        {"type": "sleep", "parameters": {"seconds": 0.5}},
    ])  # fmt: skip
    assert time.monotonic() - began >= 0.5
    assert desktop.shell("ls /home/user/commanded").strip() == "/home/user/commanded"


def test_a_command_is_run_and_what_it_was_for_is_awaited(setup: Any, desktop: Desktop) -> None:
    from desktop_env.controllers.setup import SetupController

    assert isinstance(setup, SetupController)
    done = setup._execute_with_verification_setup(
        ["bash", "-c", "(sleep 0.5; touch /tmp/made) & echo started"], {"command_success": "test -e /tmp/made"}, 10, 0.1
    )
    assert done["output"] == "started\n"
    with pytest.raises(Exception, match="a window 'Nobody' exists"):
        setup._execute_with_verification_setup(["true"], {"window_exists": "Nobody"}, 1, 0.1)


def test_passwords_of_the_client_work_with_sudo(setup: Any, desktop: Desktop, cache: Path) -> None:
    command = "echo {CLIENT_PASSWORD} | sudo -S id -u"
    setup.setup([{"type": "execute", "parameters": {"command": command, "shell": True, "stdout": "out"}}])
    assert (cache / "out").read_text() == "0\n"


def test_the_browsers_history_is_replaced(setup: Any, desktop: Desktop, cache: Path) -> None:
    with closing(sqlite3.connect(cache / "history_new.sqlite")) as history, history:
        history.executescript(EMPTY_HISTORY)
    page = {"url": "https://example.org/page", "title": "A page", "visit_time_from_now_in_seconds": 3600}
    setup.setup([{"type": "update_browse_history", "parameters": {"history": [page]}}])
    place = "/home/user/.config/google-chrome/Default/History"
    query = "import sqlite3; print(sqlite3.connect('file:%s?mode=ro', uri=True).execute('select url, title from urls').fetchall())"
    assert desktop.shell(f'python3 -c "{query % place}"').strip() == "[('https://example.org/page', 'A page')]"
    assert desktop.shell(f"stat -c %U {place}").strip() == "user"


def test_every_setup_step_is_played_or_refused() -> None:
    from desktop_env.controllers.setup import SetupController

    here = Path(__file__)
    others = ("test_controllers.py", "../environments/osworld/test_chrome.py")
    played = here.read_text() + "".join((here.parent / name).read_text() for name in others)
    steps = {name[1:].removesuffix("_setup") for name in vars(SetupController) if name.endswith("_setup")}
    by_method = {"execute_with_verification"}
    unmade = {"act", "replay", "tidy_desktop"}  # they raise NotImplementedError; tasks with them are refused
    need_an_account = {"googledrive", "login"}
    need_a_proxy = {"proxy"}
    left = steps - by_method - unmade - need_an_account - need_a_proxy
    assert [step for step in sorted(left) if f'"type": "{step}"' not in played] == []
