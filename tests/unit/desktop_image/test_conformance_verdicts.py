"""From a task file to a verdict: what it touches, and what follows when a guest has that or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmark.items import load_items
from desktop_image.conformance.facts import Facts
from desktop_image.conformance.touches import Touch, touches_of
from desktop_image.conformance.verdicts import ConformanceVerdict, counts, verdict_of
from tests.conftest import REPOSITORY

TASK: dict[str, Any] = {
    "related_apps": ["libreoffice_calc"],
    "proxy": False,
    "config": [
        {"type": "download", "parameters": {"files": [{"url": "https://a/b.xlsx", "path": "/home/user/b.xlsx"}]}},
        {"type": "open", "parameters": {"path": "/home/user/b.xlsx"}},
    ],
    "evaluator": {
        "postconfig": [
            {"type": "activate_window", "parameters": {"window_name": "b.xlsx - LibreOffice Calc", "strict": True}},
            {
                "type": "execute",
                "parameters": {"command": ["python", "-c", "import pyautogui; pyautogui.hotkey('ctrl','s')"]},
            },
        ],
        "func": "compare_table",
        "result": {"type": "vm_file", "path": "/home/user/b.xlsx", "dest": "b.xlsx"},
        "expected": {"type": "cloud_file", "path": "https://a/c.xlsx", "dest": "c.xlsx"},
    },
}
FACTS = Facts(
    there={
        "program": frozenset({"libreoffice", "python"}),
        "file type": frozenset({".xlsx"}),
        "module": frozenset({"pyautogui"}),
    },
    titles=frozenset({"Untitled 1 - LibreOffice Calc"}),
    classes=frozenset({"Mail.thunderbird"}),
)


def with_step(kind: str, **parameters: Any) -> dict[str, Any]:
    return {**TASK, "config": [{"type": kind, "parameters": parameters}]}


def with_result(kind: str, expected: Any = None, **parameters: Any) -> dict[str, Any]:
    return {**TASK, "evaluator": {"func": "f", "result": {"type": kind, **parameters}, "expected": expected}}


def test_each_thing_is_named_once_with_its_first_place() -> None:
    assert touches_of(TASK) == [
        Touch("program", "libreoffice", "related_apps"),
        Touch("file type", ".xlsx", "config, step 2"),
        Touch("window title", "b.xlsx - LibreOffice Calc", "evaluator.postconfig, step 1"),
        Touch("program", "python", "evaluator.postconfig, step 2"),
        Touch("module", "pyautogui", "evaluator.postconfig, step 2"),
    ]


def test_a_guest_that_has_it_all_is_faithful() -> None:
    assert verdict_of(touches_of(TASK), FACTS) == ConformanceVerdict("faithful")


@pytest.mark.parametrize(
    ("task", "verdict"),
    [
        (with_step("launch", command=["code"]), "needs: the program code (config, step 1)"),
        (with_step("launch", command="vlc --no-audio"), "needs: the program vlc (config, step 1)"),
        (with_step("login", settings_file="x", platform="googledrive"), "needs: an account: Google (config, step 1)"),
        ({**TASK, "proxy": True}, "needs: a proxy (proxy)"),
        (with_step("execute", command=["python", "-c", "import yt"]), "needs: the Python package yt (config, step 1)"),
        (with_step("chrome_open_tabs", urls_to_open=["https://e.org"]), "needs: the internet: e.org (config, step 1)"),
        (with_step("open", path="/home/user/a.ODS"), "unfaithful: no program there opens .ods (config, step 1)"),
        (
            with_step("close_window", window_name="Mail.other", by_class=True, strict=True),
            "unfaithful: no window there has the class Mail.other (config, step 1)",
        ),
        (with_step("close_window", window_name="mail.Thunderbird", by_class=True), "faithful"),
        (
            with_step("activate_window", window_name="a - Other Office"),
            "unfaithful: no window there is titled a - Other Office (config, step 1)",
        ),
        (
            with_result("vm_file", path="/etc/timezone"),
            "unfaithful: it has no /etc/timezone (evaluator.result)",
        ),
        ({**with_result("vm_file", path="/etc/own"), "instruction": "Write 1 to /etc/own, as root."}, "faithful"),
        (with_result("vm_file", path="/home/user/x"), "faithful"),
        (with_result("vlc_config"), "needs: the program vlc (evaluator.result)"),
        (
            with_result("active_tab_info", expected={"type": "rule", "rules": {"url": "https://e.org/x"}}),
            "needs: the program google-chrome (evaluator.result); the internet: e.org (evaluator.expected)",
        ),
        (
            with_result(
                "accessibility_tree", expected={"type": "rule", "rules": [{"selectors": ["application[name=Mail] x"]}]}
            ),
            "unfaithful: no program calls itself Mail in the accessibility tree (evaluator.expected)",
        ),
    ],
)
def test_what_is_missing_decides(task: dict[str, Any], verdict: str) -> None:
    assert str(verdict_of(touches_of(task), FACTS)) == verdict


@pytest.mark.parametrize(
    ("instruction", "needs"),
    [
        ("Make Bing the main search engine.", ""),
        ("I have installed it and downloaded the files already.", ""),
        ("Name the slide's title 'Online Shopping'.", ""),
        ("Pack the website in my folder.", ""),
        ('Call the folder "download".', ""),
        ("It is in my download folder.", ""),
        ("Please clone the repo.", "the internet: to clone (instruction)"),
        ("Help me Install Spotify.", "the internet: to install (instruction)"),
        ("Search the Internet for a tutorial.", "the internet: to search the internet (instruction)"),
        ("Their homepage links are listed.", "the internet: homepage (instruction)"),
        ("All papers of today via arxiv daily.", "the internet: arxiv daily (instruction)"),
        ("Play https://e.org/x.m3u8 for me", "the internet: e.org (instruction)"),
        ("Open http://localhost:8000/ for me", ""),
    ],
)
def test_what_an_instruction_asks_to_fetch_is_needed(instruction: str, needs: str) -> None:
    said = str(verdict_of(touches_of({**TASK, "instruction": instruction}), FACTS))

    assert said == (f"needs: {needs}" if needs else "faithful")
    evaluator = {**TASK["evaluator"], "func": "infeasible"}
    assert (
        verdict_of(touches_of({**TASK, "instruction": instruction, "evaluator": evaluator}), FACTS).name == "faithful"
    )


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ("libreoffice 7.3", "faithful"),
        ("libreoffice 7.4", "unfaithful: what was infeasible can be done there, since libreoffice 7.4 (instruction)"),
        ("libreoffice 24.2", "unfaithful: what was infeasible can be done there, since libreoffice 7.4 (instruction)"),
        ("gimp 9.0", "faithful"),
    ],
)
def test_a_newer_program_can_make_an_infeasible_task_feasible(version: str, verdict: str) -> None:
    facts = Facts({**FACTS.there, "version": frozenset({version})}, FACTS.titles)
    task = {**TASK, "instruction": "Make sparkline charts.", "evaluator": {"func": "infeasible"}}

    assert str(verdict_of(touches_of(task), facts)) == verdict
    assert verdict_of(touches_of({**task, "evaluator": TASK["evaluator"]}), facts).name == "faithful"


def test_a_picture_of_another_office_is_another_picture() -> None:
    task = {
        **TASK,
        "related_apps": ["libreoffice_impress"],
        "evaluator": {**TASK["evaluator"], "func": "compare_images"},
    }
    same = Facts({**FACTS.there, "version": frozenset({"libreoffice 7.3"})}, FACTS.titles)

    said = (
        "unfaithful: a picture is compared pixel by pixel with one that libreoffice 7.3 has rendered (evaluator.func)"
    )
    assert str(verdict_of(touches_of(task), FACTS)) == said
    assert verdict_of(touches_of(task), same).name == "faithful"
    assert verdict_of(touches_of({**task, "related_apps": ["libreoffice_calc", "gimp"]}), FACTS).name == "needs"


def test_a_picture_that_another_office_pastes_is_another_picture() -> None:
    """LibreOffice 7.4 saves it with transparency, even if it had none; the metric compares bytes."""
    task = {
        **TASK,
        "related_apps": ["libreoffice_writer", "gimp"],
        "evaluator": {**TASK["evaluator"], "func": "compare_docx_images"},
    }
    there = {**FACTS.there, "program": FACTS.there["program"] | {"gimp", "libreoffice"}}
    same = Facts({**there, "version": frozenset({"libreoffice 7.3"})}, FACTS.titles)

    assert str(verdict_of(touches_of(task), Facts(there, FACTS.titles))) == (
        "unfaithful: a pasted picture is compared byte by byte with one that libreoffice 7.3 has saved, and others add"
        " transparency (evaluator.func)"
    )
    assert verdict_of(touches_of(task), same).name == "faithful"
    from_a_file = {**task, "related_apps": ["libreoffice_writer"]}
    assert verdict_of(touches_of(from_a_file), Facts(there, FACTS.titles)).name == "faithful"


@pytest.mark.parametrize(
    ("instruction", "options", "verdict"),
    [
        ("On the last slide, insert a table with 5 rows.", None, "unfaithful"),
        ("Please add an image to slide 2", {"examine_bullets": False}, "unfaithful"),
        ("Draw a small red text box there", {}, "unfaithful"),
        ("Insert a table there", {"examine_shape": False}, "faithful"),
        ('Add a note "table" to the slide', None, "faithful"),
        ("Make the table's text bold", None, "faithful"),
        ("Add a caption below picture 2, and put a border around shape 3", None, "faithful"),
    ],
)
def test_where_something_new_is_on_a_slide_depends_on_the_window(
    instruction: str, options: dict[str, Any] | None, verdict: str
) -> None:
    evaluator = {**TASK["evaluator"], "func": "compare_pptx_files", **({} if options is None else {"options": options})}
    task = {**TASK, "instruction": instruction, "evaluator": evaluator}
    with_shell = Facts({**FACTS.there, "program": FACTS.there["program"] | {"gnome-shell"}}, FACTS.titles)

    assert verdict_of(touches_of(task), FACTS).name == verdict
    assert verdict_of(touches_of(task), with_shell).name == "faithful"


def test_a_page_in_the_rules_is_needed_whatever_looks_at_it() -> None:
    task = with_result("vm_file", expected={"type": "rule", "rules": {"type": "url", "url": "https://e.org/x"}})

    assert str(verdict_of(touches_of(task), FACTS)) == "needs: the internet: e.org (evaluator.expected)"


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        ("/usr/lib/there", "faithful"),
        ("/lib/there", "faithful"),
        ("/usr/lib/there/", "faithful"),
        ("/usr/lib/th*", "faithful"),
        ("/usr/lib/gone", "unfaithful: it has no /usr/lib/gone (config, step 1)"),
        ("/usr/lib/g*", "unfaithful: it has no /usr/lib/g* (config, step 1)"),
    ],
)
def test_files_are_there_under_any_of_their_names(path: str, verdict: str) -> None:
    facts = Facts({"file": frozenset({"/usr/lib/there"})})

    assert str(verdict_of([Touch("file", path, "config, step 1")], facts)) == verdict


@pytest.mark.parametrize(
    ("there", "verdict"),
    [
        ({}, "needs: the internet: the package my-tool (config, step 1)"),
        ({"program": frozenset({"my-tool"})}, "faithful"),
        ({"module": frozenset({"my_tool"})}, "faithful"),
        ({"network": frozenset({"internet"})}, "faithful"),
    ],
)
def test_a_package_that_is_there_need_not_be_fetched(there: dict[str, frozenset[str]], verdict: str) -> None:
    assert str(verdict_of([Touch("package", "my-tool", "config, step 1")], Facts(there))) == verdict


def test_a_guest_with_a_way_out_has_the_internet_and_needs_no_proxy() -> None:
    touches = [Touch("internet", "e.org", "config, step 1"), Touch("proxy", "a proxy", "proxy")]

    assert verdict_of(touches, Facts({"network": frozenset({"internet"})})).name == "faithful"
    assert verdict_of(touches, Facts()).name == "needs"


def test_the_settings_of_gnomes_shell_need_it() -> None:
    touches = [Touch("setting", "org.gnome.shell favorite-apps", "evaluator.result")]
    there = {"setting": frozenset({"org.gnome.shell favorite-apps"})}
    said = (
        "unfaithful: its dock is not GNOME Shell's and does not follow org.gnome.shell favorite-apps (evaluator.result)"
    )

    assert str(verdict_of(touches, replace(FACTS, there=there))) == said
    with_shell = {**there, "program": frozenset({"gnome-shell"})}
    assert str(verdict_of(touches, replace(FACTS, there=with_shell))) == "faithful"


@pytest.mark.parametrize(
    "task",
    [
        {},
        {"config": None, "evaluator": None},
        {"config": "x", "evaluator": []},
        {
            "config": [1, {"type": "launch"}, {"type": 3, "parameters": {"command": 1}}],
            "evaluator": {"result": [None, "x"]},
        },
        {"config": [{"type": "launch", "parameters": {"command": None}}, {"type": "open", "parameters": {}}]},
        {"evaluator": {"result": {"type": "vm_file", "path": None}, "expected": {"type": "rule", "rules": None}}},
    ],
)
def test_what_is_no_task_touches_nothing(task: dict[str, Any]) -> None:
    assert touches_of(task) == []


def test_verdicts_are_counted() -> None:
    assert counts(["needs", "faithful", "faithful"]) == {"faithful": 2, "unfaithful": 0, "needs": 1}


def test_the_example_tasks_ask_for_nothing_from_the_internet() -> None:
    items = load_items(REPOSITORY / "examples" / "desktop").items

    for item in items:
        touched = touches_of({**item.metadata, **item.env_config, "instruction": item.question})
        assert [touch for touch in touched if touch.kind in {"account", "internet", "proxy"}] == [], item.id
    assert len(items) > 10
