"""Tasks about web pages, on the guest's own browser: set up, looked at and scored through its debugging port and its files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.desktops import needs_local_desktops
from tests.integration.environments.osworld.conftest import Play

PROFILE = "browser"
pytestmark = [needs_local_desktops, pytest.mark.slow, pytest.mark.timeout(1800)]  # its image takes minutes to build

Begin = Callable[..., Play]
SITE = "http://127.0.0.1:8000"
"""Pages within the guest, which has no other network."""
PAGES = ("apples", "pears", "plums")
CHROME = {"type": "launch", "parameters": {"command": ["google-chrome", "--remote-debugging-port=1337"]}}
AGAIN = [
    {"type": "launch", "parameters": {"command": ["pkill", "chrome"]}},
    CHROME,
    {"type": "sleep", "parameters": {"seconds": 3}},
]
"""How OSWorld's tasks have Chrome write down what it was told."""


def page(name: str) -> str:
    return f"{SITE}/{name}.html"


def launched(*command: str) -> dict[str, Any]:
    return {"type": "launch", "parameters": {"command": list(command)}}


def opened(*names: str) -> dict[str, Any]:
    return {"type": "chrome_open_tabs", "parameters": {"urls_to_open": [page(name) for name in names]}}


def by(func: str, getter: str, rules: dict[str, Any], **parameters: Any) -> dict[str, Any]:
    """An evaluator."""
    return {"func": func, "result": {"type": getter, **parameters}, "expected": {"type": "rule", "rules": rules}}


def tabs(*names: str) -> dict[str, Any]:
    return by("is_expected_tabs", "open_tabs_info", {"type": "url", "urls": [page(name) for name in names]})


def put_on_the_bar(playing: Play, name: str) -> None:
    """Makes a folder on the bar of bookmarks."""
    playing.act("desktop_hotkey", keys=["ctrl", "shift", "b"], pause=1)
    playing.act("desktop_mouse_right_click", x=600, y=110, pause=1)
    playing.act("desktop_key_press", key="f", pause=1)
    playing.act("desktop_hotkey", keys=["ctrl", "a"])
    playing.act("desktop_type", text=f"{name}\n", pause=1)


SETUP = [
    {
        "type": "execute",
        "parameters": {
            "shell": True,
            "command": "mkdir -p ~/site && cd ~/site && for name in apples pears plums; do"
            ' echo "<title>All about $name</title><h1>$name</h1><p class=price>3 for 2</p>" > $name.html; done',
        },
    },
    launched("python", "-m", "http.server", "8000", "--bind", "127.0.0.1", "--directory", "/home/user/site"),
    CHROME,
    launched("socat", "tcp-listen:9222,fork", "tcp:localhost:1337"),  # as in OSWorld's tasks; it is there already
]


@pytest.mark.usefixtures("trusted")
def test_a_closed_tab_is_brought_back(play: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (temporary := tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    closed = {"type": "chrome_close_tabs", "parameters": {"urls_to_close": [page("plums")]}}
    activated = {"type": "activate_window", "parameters": {"window_name": "Google Chrome"}}
    setup = [*SETUP, opened(*PAGES), closed, activated]
    playing = play(setup, tabs(*PAGES), action_space="computer_13", observation_type="screenshot_a11y_tree")

    assert playing.first is not None
    assert "All about pears" in playing.first.text
    assert playing.environment.evaluate() == 0.0
    playing.act("desktop_hotkey", keys=["ctrl", "shift", "t"], pause=2)
    assert playing.environment.evaluate() == 1.0

    playing.environment.close()
    assert list(temporary.iterdir()) == [], "the browser's driver left something"


@pytest.mark.usefixtures("clean")
def test_what_evaluators_find_out_about_the_browser(play: Begin) -> None:
    playing = play([*SETUP, opened("apples", "pears")], action_space="computer_13")
    put_on_the_bar(playing, "pears")
    playing.environment.close()

    def scored(evaluator: dict[str, Any]) -> float | None:
        again = play(evaluator=evaluator)
        score = again.environment.evaluate()
        again.environment.close()
        return score

    def each(name: str) -> dict[str, dict[str, Any]]:
        """Evaluators that are satisfied with one page only; desktop-env takes an address from its bar, without http."""
        url = {"type": "url", "url": page(name)}
        price = {"category": "class", "class_singleObject": {"price": "price"}, "goto_prefix": "http://"}
        return {
            "active_tab_info": by("is_expected_active_tab", "active_tab_info", url, goto_prefix="http://"),
            "active_url_from_accessTree": by(
                "is_expected_active_tab", "active_url_from_accessTree", url, goto_prefix="http://"
            ),
            "active_tab_html_parse": by(
                "check_direct_json_object",
                "active_tab_html_parse",
                {"expected": {"price": "3 for 2" if name == "pears" else "1 for 1"}},
                **price,
            ),
            "url_dashPart": by(
                "check_direct_json_object",
                "url_dashPart",
                {"expected": {"page": f"{name}.html"}},
                goto_prefix="http://",
                partIndex=-1,
                returnType="json",
                key="page",
            ),
            "page_info": by(
                "is_expected_url_pattern_match", "page_info", {"expected": [f"{name}.html$"]}, url=page("pears")
            ),
            "open_tabs_info": tabs("apples", name),
            "bookmarks": by(
                "is_expected_bookmarks", "bookmarks", {"type": "bookmark_bar_folders_names", "names": [name]}
            )
            | {"postconfig": AGAIN},
            "default_search_engine": by(
                "match_in_list", "default_search_engine", {"expected": ["Google"] if name == "pears" else ["Bing"]}
            ),
        }

    assert {getter: scored(evaluator) for getter, evaluator in each("pears").items()} == dict.fromkeys(each(""), 1.0)
    assert {getter: scored(evaluator) for getter, evaluator in each("plums").items()} == dict.fromkeys(each(""), 0.0)


@pytest.mark.usefixtures("clean")
def test_what_chrome_was_told_a_moment_ago_counts(play: Begin) -> None:
    names = {"type": "bookmark_bar_folders_names", "names": ["plums"]}
    playing = play(
        [*SETUP, opened("apples", "pears")], by("is_expected_bookmarks", "bookmarks", names), action_space="computer_13"
    )
    put_on_the_bar(playing, "plums")

    assert playing.environment.evaluate() == 1.0
