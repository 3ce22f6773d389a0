"""`scripts/submit.py`: each of its options beside each of its actions is used or refused, and never ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from rollout_tasks.cli import submit_script
from rollout_tasks.errors import UserError

COMMAND: Any = typer.main.get_command(submit_script.application)
ACTIONS = ("--resume", "--status", "--cancel")
CHANGED = {"--base-url": "http://127.0.0.1:1/v1", "--model-pool": "p", "--model-role": "grounder=m"}
CHANGED |= {"--prompt-price": "1", "--completion-price": "1", "--max-cost": "1"}
USED = {
    "--resume": {"--json", "--watch", "--dry-run", "--embedded", "--trust-tasks", "--output-dir", *CHANGED},
    "--status": {"--json", "--watch", "--output-dir"},
    "--cancel": {"--json", "--output-dir"},
}
OPTIONS = [one for one in COMMAND.params if one.opts[0] not in {*ACTIONS, "--help"}]


def said(*arguments: str) -> str:
    with pytest.raises(UserError) as caught:
        COMMAND(list(arguments), standalone_mode=False)
    return str(caught.value)


@pytest.fixture(autouse=True)
def nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run, and no Redis: what is not refused ends there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROLLOUT_REDIS_URL", "redis://127.0.0.1:1/0")


@pytest.mark.parametrize("action", ACTIONS)
def test_an_option_beside_an_action_is_used_or_refused(action: str) -> None:
    wrong = []
    for option in OPTIONS:
        name = option.opts[0]
        value = [] if option.is_flag else [CHANGED.get(name, "1")]
        for spelling in (*option.opts, *option.secondary_opts):
            refused = f"; leave out {name}" in said(action, "none", spelling, *value)
            if refused == (name in USED[action]):
                wrong.append(spelling)
    assert wrong == []


def test_actions_exclude_each_other() -> None:
    for first in ACTIONS:
        for second in set(ACTIONS) - {first}:
            assert said(first, "one", second, "two") == "--resume, --status and --cancel exclude each other"


def test_all_options_that_do_not_belong_are_named_at_once() -> None:
    assert said("--cancel", "one", "--watch", "--dry-run", "--max-turns", "3") == (
        "--cancel takes no options of a run; leave out --dry-run, --max-turns, --watch"
    )
