"""Which items are OSWorld tasks, and what each task needs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item, load_items
from rollout_tasks.config import DataConfig, DesktopConfig, RunConfig
from rollout_tasks.environments.osworld.needs import needs_of, total
from rollout_tasks.environments.osworld.task import TaskError, task_config
from rollout_tasks.environments.osworld.task_files import files_of
from rollout_tasks.errors import UserError
from rollout_tasks.runs import preflight

EVALUATOR = {
    "func": "exact_match",
    "result": {"type": "vm_command_line", "command": "cat a"},
    "expected": {"type": "rule", "rules": {"expected": "a"}},
}


def item(config: Any = (), evaluator: Any = EVALUATOR, **env_config: Any) -> Item:
    config = list(config) if isinstance(config, tuple) else config
    return Item("7", "Do it", metadata={"config": config, "evaluator": evaluator}, env_config=env_config)


def test_every_real_task_is_valid_and_names_what_it_needs(shared_data: Path) -> None:
    benchmark = load_items(shared_data / "osworld")
    needs = [needs_of(task_config(item), item) for item in benchmark]

    assert len(benchmark) == 322
    summed = total(needs)
    assert set(summed["programs"]) >= {"chrome", "gimp", "libreoffice", "thunderbird", "vlc", "vscode"}
    assert summed["downloads"] > 400
    assert summed["accounts"] == {"Google Drive": 8}
    assert summed["packages"] == {"easyocr": 1, "pygame (in the guest)": 2}
    assert summed["proxy"] == 51
    assert summed["internet"] >= 50
    libreoffice = [need for need, item in zip(needs, benchmark, strict=True) if item.domain == "libreoffice_calc"]
    assert all("libreoffice" in need.programs for need in libreoffice)


def test_offline_tasks_need_nothing_of_the_internet(shared_data: Path) -> None:
    benchmark = load_items(shared_data / "osworld" / "test_offline.json")
    needs = [needs_of(task_config(item), item) for item in benchmark]

    assert len(needs) == 44
    assert not any(need.downloads or need.accounts for need in needs)


def test_a_task_is_what_desktop_env_takes() -> None:
    task = task_config(item([{"type": "sleep", "parameters": {"seconds": 1}}], snapshot="clean", proxy=True))

    assert task["instruction"] == "Do it"
    assert task["config"] == [{"type": "sleep", "parameters": {"seconds": 1}}]
    assert (task["snapshot"], task["proxy"], task["fixed_ip"]) == ("clean", True, False)
    assert task["evaluator"] == EVALUATOR
    assert task["evaluator"] is not EVALUATOR


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("sleep", "config must be a list of setup steps, got 'sleep'"),
        (["sleep"], "config, step 1 must be an object with a type, got 'sleep'"),
        ([{"type": "sleep", "parameters": 1}], "config, step 1: parameters must be an object, got 1"),
        ([{"type": "slep", "parameters": {}}], "config, step 1: slep is not a setup step; known: activate_window, "),
        ([{"type": "replay", "parameters": {"trajectory": "x"}}], "config, step 1: replay is not a setup step"),
        ([{"type": "sleep", "parameters": {}}], "config, step 1: sleep lacks the parameter seconds"),
        ([{"type": "sleep"}], "config, step 1: sleep lacks the parameter seconds"),
        ([{"type": "sleep", "parameters": {"seconds": 1, "x": 1}}], "config, step 1: sleep has no parameter x"),
        ([{"type": "upload_file", "parameters": {"files": []}}], "config, step 1: upload_file would read a file"),
        ([{"type": "download", "parameters": {"files": {}}}], "config, step 1: files must be a list"),
        (
            [{"type": "download", "parameters": {"files": [{"url": "file:///etc/passwd", "path": "/a"}]}}],
            "config, step 1: url must begin with http:// or https://, got 'file:///etc/passwd'",
        ),
        (
            [{"type": "download", "parameters": {"files": [{"url": "http://a/b", "path": "/"}]}}],
            "config, step 1: path must name a file",
        ),
        *(
            (
                [{"type": "download", "parameters": {"files": [{"url": "http://a/b", "path": path}]}}],
                "config, step 1: path must name a file",
            )
            for path in ("", "/home/u/f/", "/home/u/f/.", "/home/u/..", "/a\0", ["/a"])
        ),
        (
            [{"type": "execute", "parameters": {"command": "ls", "stdout": "../x"}}],
            "config, step 1: stdout must stay in the task's folder, got '../x'",
        ),
        *(
            (
                [{"type": kind, "parameters": {"settings_file": path, **more}}],
                "config, step 1: settings_file must be in evaluation_examples/settings/, got ",
            )
            for kind, more in (
                ("googledrive", {"operation": [], "args": []}),
                ("login", {"platform": "googledrive"}),
            )
            for path in (
                *("settings.yml", "/etc/settings.yml", "evaluation_examples/settings/../../x.yml", ["x"], "a\0"),
                *(
                    f"evaluation_examples/settings/{end}"
                    for end in ("", ".", "..", "/", "./", "./.", "//x", "a/", "a/.")
                ),
                *(
                    "evaluation_examples/settings",
                    "./evaluation_examples/settings/x",
                    "evaluation_examples//settings/x",
                ),
                *("evaluation_examples/settings//x", "evaluation_examples/settings/./x", "", None),
            )
        ),
    ],
)
def test_a_wrong_setup_is_named(config: Any, said: str) -> None:
    with pytest.raises(TaskError) as caught:
        task_config(item(config))

    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"func": None}, "evaluator.func must name a metric or several, got nothing"),
        ({"func": "exact_mach"}, "evaluator.func: desktop-env has no metric 'exact_mach'"),
        ({"conj": "xor"}, "evaluator.conj must be 'and' or 'or', got 'xor'"),
        ({"conj": ["and"]}, "evaluator.conj must be 'and' or 'or', got ['and']"),
        ({"conj": {}}, "evaluator.conj must be 'and' or 'or', got {}"),
        (
            {"result": {"type": "cache_file", "path": "/etc/passwd"}},
            "evaluator.result: path must stay in the task's folder, got '/etc/passwd'",
        ),
        (
            {"result": {"type": "cache_file", "path": "../../x"}},
            "evaluator.result: path must stay in the task's folder, got '../../x'",
        ),
        ({"result": {"type": "cache_file"}}, "evaluator.result: path must name a file, got nothing"),
        (
            {"result": {"type": "vm_file", "path": "/a", "dest": "a/b"}},
            "evaluator.result: dest must be a file's name without a folder, got ",
        ),
        *(
            (
                {"result": {"type": "vm_file", "path": "/a", "dest": "a", "time_suffix": True, "time_format": given}},
                "evaluator.result: time_format must be part of a file's name, got ",
            )
            for given in ("/../../../etc/x", "%D", "%x", "%c", "%Y/%m", ["/"], "\0", "%")
        ),
        (
            {"expected": {"type": "googledrive_file", "settings_file": "x.yml", "query": "x", "dest": "a"}},
            "evaluator.expected: settings_file must be in evaluation_examples/settings/, got 'x.yml'",
        ),
        ({"result": None}, "evaluator.result is missing: what does exact_match look at?"),
        ({"result": {"type": "vm_fle"}}, "evaluator.result: desktop-env has no getter 'vm_fle'"),
        ({"result": {"command": "x"}}, "evaluator.result must have a type"),
        ({"result": [{"type": "rule"}]}, "evaluator.result must be an object, got ["),
        ({"func": ["exact_match", "exact_match"]}, "evaluator.result must be a list of 2, one for each metric, got {"),
        ({"expected": {"type": "cloud_file", "path": "ftp://a", "dest": "a"}}, "evaluator.expected: url must begin"),
        *(
            ({"expected": {"type": "cloud_file", **given}}, "evaluator.expected: path and dest must be ")
            for given in (
                {"path": ["http://a"], "dest": "abc", "multi": True},
                {"path": "http://a", "dest": ["a"], "multi": True},
                {"path": ["http://a"], "dest": ["a"]},
                {"path": "http://a"},
                {"dest": "a"},
                {"path": ["http://a"], "dest": ["a", "b"], "multi": True},
            )
        ),
        *(
            (
                {"expected": {"type": "cloud_file", "path": "http://a", "dest": dest}},
                "evaluator.expected: dest must name a file, got ",
            )
            for dest in ("a/", "a/.", "a/..", "a\0")
        ),
        (
            {"expected": {"type": "cloud_file", "path": "http://a", "dest": "/etc/x"}},
            "evaluator.expected: dest must stay in the task's folder, got '/etc/x'",
        ),
        (
            {"expected": {"type": "cloud_file", "path": ["http://a"], "dest": ["a", "b"], "multi": True}},
            "evaluator.expected: path and dest must be lists of the same length",
        ),
        ({"postconfig": [{"type": "slep"}]}, "evaluator.postconfig, step 1: slep is not a setup step"),
    ],
)
def test_a_wrong_evaluator_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(TaskError) as caught:
        task_config(item(evaluator={**EVALUATOR, **changes}))

    assert str(caught.value).startswith(said)


def test_an_item_without_evaluator_is_no_task() -> None:
    with pytest.raises(TaskError, match="evaluator must be an object, got nothing"):
        task_config(Item("7", "What is 1 + 1?", "2"))


@pytest.mark.parametrize(
    ("env_config", "said"),
    [
        ({"proxy": "yes"}, "env_config.proxy must be true or false"),
        ({"snapshot": 3}, "env_config.snapshot must be text"),
    ],
)
def test_a_wrong_setting_is_named(env_config: dict[str, Any], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        task_config(item(**env_config))


def test_files_stand_where_desktop_env_looks_for_them() -> None:
    step = {"type": "download", "parameters": {"files": [{"url": "http://a/b?c", "path": "/home/user/My file.txt"}]}}
    gold = {"type": "cloud_file", "path": ["http://a/1", "http://a/2"], "dest": ["x", "y"], "multi": True}
    task = task_config(item([step, step], {**EVALUATOR, "expected": gold}))

    assert [(file.url, file.name) for file in files_of(task)] == [
        ("http://a/b?c", "3d6932d2-3f6b-590a-8e84-1ca5ebecaefb_My file.txt"),
        ("http://a/1", "x"),
        ("http://a/2", "y"),
    ]


def test_needs_are_summed_by_kind() -> None:
    steps = [
        {"type": "launch", "parameters": {"command": ["google-chrome", "https://example.com"]}},
        {"type": "open", "parameters": {"path": "/home/user/a.XLSX"}},
        {"type": "execute", "parameters": {"command": "pip install pygame", "shell": True}},
    ]
    tasks = [item([step]) for step in steps]
    summed = total(needs_of(task_config(task), task) for task in tasks)

    assert Counter(summed["programs"]) == {"chrome": 1, "libreoffice": 1}
    assert (summed["internet"], summed["downloads"], summed["proxy"]) == (2, 0, 0)


def test_a_wrong_task_is_refused_before_anything_is_enqueued_or_left_out() -> None:
    right, wrong = item(), Item("8", "Do it", metadata={"evaluator": {"func": None}})
    said = "item '8': evaluator.func must name a metric or several, got nothing"

    with pytest.raises(UserError, match=said):
        preflight.check_items(RunConfig(), [right, wrong])
    lenient = RunConfig(data=DataConfig(skip_invalid=True))
    assert preflight.check_items(lenient, [right, wrong]) == ([right], [said])
    with pytest.raises(UserError, match="none of the 1 items is valid"):
        preflight.check_items(lenient, [wrong])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"func": "of_tomorrow"}, "evaluator.func: desktop-env has no metric 'of_tomorrow'"),
        ({"result": {"type": "of_tomorrow"}}, "evaluator.result: desktop-env has no getter 'of_tomorrow'"),
        ({"postconfig": [{"type": "of_tomorrow"}]}, "evaluator.postconfig, step 1: of_tomorrow is not a setup step"),
    ],
)
def test_a_task_that_needs_another_desktop_env_is_left_out_alone(changes: dict[str, Any], said: str) -> None:
    other = Item("8", "Do it", metadata={"evaluator": {**EVALUATOR, **changes}})

    right, left_out = preflight.check_items(RunConfig(), [item(), other])

    assert right == [item()]
    assert [sentence.startswith(f"item '8': {said}") for sentence in left_out] == [True]


def test_marks_without_an_accessibility_tree_are_refused() -> None:
    config = RunConfig(desktop=DesktopConfig(observation_type="som", require_a11y_tree=False))
    with pytest.raises(UserError, match="--no-a11y-tree: an observation of type som is made from that tree"):
        preflight.check_items(config, [item()])
