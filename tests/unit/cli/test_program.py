"""A run's options on the command line and in a run.yaml: every spelling, their precedence, and the way back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from kombu import Connection
from typer.testing import CliRunner

from rollout_tasks.cli import doctor, program
from rollout_tasks.cli.main import SUBCOMMANDS, load
from rollout_tasks.cli.run_file import as_yaml, resolve_config
from rollout_tasks.cli.run_options import aliases, config_options, spellings_of, with_config_options
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.key_values import key_values
from tests.conftest import REPOSITORY, free_port

OLD_SPELLINGS = [
    ("--data", "x.jsonl", "data.path", Path("x.jsonl")),
    ("--data_path", "x.jsonl", "data.path", Path("x.jsonl")),
    ("--mode", "math", "env_mode", "math"),
    ("--env_mode", "math", "env_mode", "math"),
    ("--num_rollouts", "7", "num_rollouts", 7),
    ("--num_vms", "4", "vm.num_vms", 4),
    ("--metric", "f1_score", "metric", "f1_score"),
    ("--evaluation_metric", "f1_score", "metric", "f1_score"),
    ("--max_turns", "3", "limits.max_turns", 3),
    ("--provider_name", "simulated", "vm.provider_name", "simulated"),
    ("--provider", "simulated", "vm.provider_name", "simulated"),
    ("--path_to_vm", "a.qcow2", "vm.path_to_vm", "a.qcow2"),
    ("--action_space", "pyautogui", "desktop.action_space", "pyautogui"),
    ("--observation_type", "som", "desktop.observation_type", "som"),
    ("--sleep_after_execution", "0.5", "desktop.sleep_after_execution", 0.5),
    ("--task_timeout", "30", "limits.max_seconds", 30.0),
    ("-n", "4", "rollouts_per_item", 4),
    ("--output_dir", "out", "output_dir", Path("out")),
]
FLAGS = [
    ("--use_resource_pool", "vm.use_pool", True),
    ("--use-vm-pool", "vm.use_pool", True),
    ("--no_pool", "vm.use_pool", False),
    ("--no-recording", "desktop.enable_recording", False),
    ("--enable_recording", "desktop.enable_recording", True),
    ("--headless", "desktop.headless", True),
    ("--no-evaluate-results", "evaluate_results", False),
    ("--skip_invalid", "data.skip_invalid", True),
]


def parsed(*arguments: str) -> dict[str, Any]:
    """The options as a command gets them."""
    seen: list[dict[str, Any]] = []
    application = typer.Typer()

    @application.command(context_settings=program.any_spelling(aliases()))
    @with_config_options
    def command(options: dict[str, Any]) -> int:
        seen.append(options)
        return 0

    result = CliRunner().invoke(application, list(arguments))
    assert result.exit_code == 0, result.output
    return seen[0]


def value_of(config: RunConfig, path: str) -> Any:
    value: Any = config
    for part in path.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize(("spelling", "text", "path", "value"), OLD_SPELLINGS)
def test_every_spelling_sets_its_option(spelling: str, text: str, path: str, value: object) -> None:
    assert value_of(resolve_config(None, parsed(spelling, text)), path) == value


@pytest.mark.parametrize(("flag", "path", "value"), FLAGS)
def test_every_flag_sets_its_option(flag: str, path: str, value: bool) -> None:
    assert value_of(resolve_config(None, parsed(flag)), path) is value


def test_no_two_options_share_a_spelling() -> None:
    spellings = Counter(
        part.replace("_", "-")
        for option in config_options()
        for spelling in option.spellings
        for part in spelling.split("/")
    )

    assert [spelling for spelling, count in spellings.items() if count > 1] == []


def test_options_that_are_not_given_are_not_in_the_dictionary() -> None:
    assert parsed() == {}
    assert parsed("--max-turns", "3") == {"limits": {"max_turns": "3"}}


def test_options_in_a_dictionary_are_named_by_their_spelling() -> None:
    assert spellings_of(parsed("--max_turns", "3", "--mode", "math", "--no-pool")) == {
        "--max-turns",
        "--env-mode",
        "--use-resource-pool",
    }


def test_options_override_a_file_and_leave_what_is_beside_them(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("env_mode: math\nlimits: {max_turns: 7, max_tokens: 100}\n")

    config = resolve_config(file, parsed("--max-turns", "3", "--metric", "numeric_match"))

    assert config.env_mode == "math"
    assert (config.limits.max_turns, config.limits.max_tokens) == (3, 100)
    assert config.metric == "numeric_match"


@pytest.mark.parametrize("written", ["1e-05", "1E-05", "+1.e-5", ".1e-4", "1.0e-5", "0.00001"])
def test_a_small_number_in_a_file_is_a_number_however_it_is_written(tmp_path: Path, written: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"env_mode: math\nmodel: {{name: 1e-model, extra_body: {{min_p: {written}}}}}\n")

    config = resolve_config(file, {})

    assert config.model.extra_body == {"min_p": 1e-05}
    assert config.model.name == "1e-model"


def test_an_error_names_whichever_of_file_and_options_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("limits: {max_turns: 7}\n")

    with pytest.raises(UserError, match=r"^--max-tokens: must be at least 1, got 0$"):
        resolve_config(file, parsed("--max-tokens", "0"))
    file.write_text("limits: {max_turns: 0}\n")
    with pytest.raises(UserError, match=r"^--config: .*run\.yaml: limits\.max_turns: must be at least 1, got 0$"):
        resolve_config(file, parsed("--max-tokens", "5"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("limits: {max_turns: 1, max_turns: 2}", "run.yaml: max_turns occurs twice, in lines 1 and 1"),
        (
            "a: &a [x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
            + "\n".join(f"{y}: &{y} [{', '.join([f'*{x}'] * 9)}]" for x, y in zip("bcdefg", "cdefgh", strict=True)),
            "run.yaml: its aliases stand for more than 20000 values",
        ),
        ("limits: {max_turns: 1", "run.yaml is not YAML: "),
    ],
)
def test_a_file_that_is_not_read_is_said(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        resolve_config(file, {})

    assert says in str(caught.value)


def test_many_items_and_small_aliases_are_read(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    ids = ", ".join(f"item-{number}" for number in range(20_001))
    file.write_text(f"data: {{ids: [{ids}], split: &split x}}\nrun_id: *split\n")

    config = resolve_config(file, {})
    assert (len(config.data.ids), config.run_id) == (20_001, "x")


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("# nothing yet\n")

    assert resolve_config(file, {}) == RunConfig()


def test_the_printed_configuration_gives_the_same_run_again(tmp_path: Path) -> None:
    options = parsed("--data", "数学.jsonl", "--answer-pattern", "#### (.+)", "--mode", "math", "--no-pool", "-n", "3")
    config = resolve_config(None, options)
    file = tmp_path / "run.yaml"

    file.write_text(as_yaml(config), encoding="utf-8")

    assert resolve_config(file, {}) == config
    assert yaml.safe_load(file.read_text(encoding="utf-8"))["data"]["path"] == "数学.jsonl"


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 100_000], ids=["a long number", "deep lists"])
def test_what_json_cannot_hold_stays_text(value: str) -> None:
    assert key_values("--option", [f"seed={value}"]) == {"seed": value}


def test_what_a_locale_lacks_is_shown_by_its_number(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rollout_tasks.cli.main", "show", "日本"],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(REPOSITORY)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "\\u65e5" in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_json_in_every_locale(encoding: str) -> None:
    text = "é 日 😀"
    code = (
        "import sys; from rollout_tasks.cli import program; sys.stdout.reconfigure(errors='backslashreplace');"
        f" program.print_json({{'text': {text!a}}})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        timeout=60,
    )
    assert json.loads(done.stdout.decode(encoding)) == {"text": text}
    assert (text.encode() in done.stdout) == (encoding == "utf-8")


@pytest.mark.parametrize(
    ("where", "ends", "says"),
    [
        ("| true", 1, ""),
        ("> /dev/full", 2, "error: standard output: No space left on device\n"),
        (">&-", 0, ""),
        ("<&- >&- 2>&-", 0, ""),
    ],
)
def test_output_that_nobody_takes_is_no_traceback(where: str, ends: int, says: str) -> None:
    command = f"{sys.executable} -c 'from rollout_tasks.cli import listing, program; program.run(listing.application)'"
    done = subprocess.run(
        ["bash", "-c", f"{command} metrics --json {where}; exit ${{PIPESTATUS[0]}}"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (ends, "", says)


def test_a_user_without_a_home_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(_path: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", classmethod(none))
    monkeypatch.setattr("sys.argv", ["doctor"])
    with pytest.raises(SystemExit) as ended:
        program.run(doctor.application)

    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: this user has no home for a cache: set HOME or XDG_CACHE_HOME\n"


def test_a_file_that_cannot_be_used_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    application = typer.Typer(pretty_exceptions_enable=False)

    @application.command()
    def refused() -> None:
        raise PermissionError(13, "Permission denied", "/somebody/elses")

    with pytest.raises(SystemExit) as ended, pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.argv", ["refused"])
        program.run(application)

    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: /somebody/elses: Permission denied\n"


def test_a_broker_that_takes_no_message_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    application = typer.Typer(pretty_exceptions_enable=False)

    @application.command()
    def send() -> None:
        with Connection(f"redis://127.0.0.1:{free_port()}") as connection:
            connection.ensure_connection(max_retries=1, interval_start=0)

    with pytest.raises(SystemExit) as ended, pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.argv", ["send"])
        program.run(application)

    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("error: Redis: Error 111 connecting to 127.0.0.1:")
    assert said.count("\n") == 1


def helps_of(name: str, command: Any) -> Iterator[tuple[str, str]]:
    yield name, command.help or ""
    for below, its in getattr(command, "commands", {}).items():
        yield from helps_of(f"{name} {below}", its)


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_help_breaks_its_lines_where_80_columns_do(subcommand: str) -> None:
    """Lines of a paragraph stay apart: a longer one would be followed by a short rest."""
    for name, text in helps_of(subcommand, load(subcommand)):
        for paragraph in text.replace("\b", "").split("\n\n"):
            lines = [re.sub(r"\[/?\w+\]", "", line) for line in paragraph.strip("\n").split("\n")]
            assert len(lines) == 1 or max(map(len, lines)) <= 78, (name, lines)
