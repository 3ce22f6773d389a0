"""`rollouts image build`: what it refuses because it would ignore it, and the command that a page says it was made by."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer import BadParameter
from typer.main import get_command

from rollout_tasks.cli import conformance_table, image, image_check
from rollout_tasks.errors import UserError

CHECK_TAKES = "--profile, --provider, --provider-option, --page and --json"


def build(*arguments: str) -> None:
    get_command(image.group)(["build", *arguments], standalone_mode=False)


@pytest.fixture(autouse=True)
def _nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("--name mine --check tasks", f"--name: --check ignores it; it takes only {CHECK_TAKES}"),
        ("--check tasks --name mine --package x", f"--name: --check ignores it; it takes only {CHECK_TAKES}"),
        ("--check tasks --disk", f"--disk: --check ignores it; it takes only {CHECK_TAKES}"),
        ("--check tasks --list", f"--list: --check ignores it; it takes only {CHECK_TAKES}"),
        ("--list --profile core", "--profile: --list ignores it; it takes only --json"),
        ("--prune --disk", "--disk: --prune ignores it; it takes only --json"),
        ("--remove mine --name mine", "--name: --remove ignores it; it takes only --json"),
        ("--prune --remove mine", "--remove: --prune ignores it; it takes only --json"),
        ("--provider qemu", "--provider: it is for --check, which is missing"),
        ("-o path_to_vm=x", "--provider-option: it is for --check, which is missing"),
        ("--profile full --page", "--page: it is for --check, which is missing"),
        ("--check tasks --page --json", "--page, --json: only one of them can be printed"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(given: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        build(*given.split())

    assert str(caught.value) == sentence


@pytest.mark.parametrize("option", ["--font", "--run", "--keyring", "--check"])
def test_a_path_that_is_empty_is_not_the_current_folder(option: str) -> None:
    with pytest.raises(BadParameter, match="its value is empty"):
        build("--name", "mine", option, "")


@pytest.mark.parametrize("option", ["--name", "--remove", "--suite"])
def test_a_name_that_is_empty_is_refused(option: str) -> None:
    """As of a variable that is not set: the usual image would be built in its place."""
    with pytest.raises(UserError, match=f"^{option}: its value is empty$"):
        build(option, "")


@pytest.mark.parametrize("given", ["--list", "--list --json", "--prune", "--prune --json"])
def test_what_goes_together_is_done(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    build(*given.split())

    assert capsys.readouterr().out


MATH = {"id": "sum", "question": "2 + 3?", "answer": "5", "env_config": {"env_mode": "math"}}
TASK = {"id": "look", "question": "Look.", "metadata": {"config": [], "evaluator": {"func": "infeasible"}}}


def test_only_tasks_of_desktops_are_compared_with_an_image(tmp_path: Path) -> None:
    data = tmp_path / "items.jsonl"
    wrong = {name: value for name, value in MATH.items() if name != "answer"}
    data.write_text(f"{json.dumps(wrong)}\n{json.dumps(TASK)}\n")

    assert [item.id for item in image_check.tasks_in(data)[0]] == ["look"]


def test_items_without_a_desktop_are_not_compared_at_all(tmp_path: Path) -> None:
    data = tmp_path / "items.jsonl"
    data.write_text(json.dumps(MATH))

    with pytest.raises(UserError) as caught:
        build("--check", str(data))

    assert str(caught.value) == f"--check: {data} has no task of osworld"


def test_a_page_names_the_command_that_makes_it() -> None:
    command = image_check.command_of_page(
        Path("my tasks/all.json"), "mine", "qemu", ["path_to_vm=a b.qcow2", "screen_size=[1,2]"]
    )
    page = conformance_table.as_page([], "all.json", "an image", command)

    assert re.findall(r"```bash\n(.*)\n```", page) == [
        "rollouts image build --profile mine --provider qemu --provider-option 'path_to_vm=a b.qcow2'"
        " --provider-option 'screen_size=[1,2]' --check 'my tasks/all.json' --page"
    ]


def test_the_command_of_a_page_leaves_out_the_usual_provider() -> None:
    command = image_check.command_of_page(Path("osworld/test_all.json"), "full", "local", [])

    assert command == "rollouts image build --profile full --check osworld/test_all.json --page"
