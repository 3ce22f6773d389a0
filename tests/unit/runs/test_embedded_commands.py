"""What commands say of embedded runs, and what a run's folder says about where it was and who answered."""

# ruff: noqa: F811 (the fixture `shell` is imported)

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from rollout_tasks.cli import run_actions, runs
from rollout_tasks.cli.listing import listing
from rollout_tasks.cli.submit_script import application
from rollout_tasks.errors import UserError
from rollout_tasks.runs.finalize import score_run
from rollout_tasks.runs.run_lock import held
from rollout_tasks.runs.submission import load_benchmark, new_submission
from rollout_tasks.runs.submit import write_down
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.settings import settings
from tests.conftest import REPOSITORY
from tests.unit.runs.test_run_commands import Shell, shell  # noqa: F401 (a fixture)

SCRIPT = {"id": "a", "script": [{"text": "4"}]}
GROUP = 65534
LOCKS_OF_NFS = """
import errno, fcntl
flock = fcntl.flock
def flock_of_nfs(descriptor, how):
    if how & fcntl.LOCK_EX and not fcntl.fcntl(descriptor, fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    flock(descriptor, how)
fcntl.flock = flock_of_nfs
"""
"""There a lock for oneself alone needs a descriptor that may write."""

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user")


def begin(shell: Shell, *, embedded: bool, **options: object) -> None:
    """A run that was interrupted before its first rollout ended."""
    config = shell.config(SCRIPT, **options)
    write_down(replace(new_submission(config, load_benchmark(config)), embedded=embedded))


def would_be_embedded(shell: Shell, embedded: bool | None = None) -> bool:
    options = {"dry_run": True, "as_json": True, "embedded": embedded}
    assert shell.call(run_actions.resume, str(shell.run.path), {}, **options) == 0
    return bool(json.loads(shell.out)["embedded"])


def test_a_resumed_run_goes_on_where_it_was(shell: Shell) -> None:
    begin(shell, embedded=True)

    assert would_be_embedded(shell)
    assert not would_be_embedded(shell, embedded=False)

    assert shell.call(run_actions.resume, str(shell.run.path), {}, embedded=False) == 0  # it has moved to the workers
    assert shell.run.description.embedded() is False
    shell.store.forget("night-1", "running")
    assert not would_be_embedded(shell)


def test_a_run_is_not_resumed_here_while_workers_roll_it_out(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"embedded": True, "dry_run": True}
    shell.call(run_actions.submit, shell.config(SCRIPT))

    with pytest.raises(UserError, match=r"^run night-1 is still running; follow it with rollouts watch night-1$"):
        shell.call(run_actions.resume, str(shell.run.path), {}, **here)
    moved = shell.folder / "moved"
    shell.client.hset("{run:night-1}", "folder", str(moved))  # where it was before it was moved here
    with pytest.raises(UserError, match=r"^run night-1 is still running"):
        shell.call(run_actions.resume, str(shell.run.path), {}, **here)
    moved.mkdir()  # now it is another run of that name
    assert shell.call(run_actions.resume, str(shell.run.path), {}, **here) == 0
    monkeypatch.setenv("ROLLOUT_REDIS_URL", "redis://127.0.0.1:1/0")
    settings.cache_clear()
    with pytest.raises(UserError, match=r"so it is not known whether workers are rolling out run night-1: where REDIS"):
        shell.call(run_actions.resume, str(shell.run.path), {}, **here)


def taken_up_by_another(shell: Shell, before: str = "") -> subprocess.CompletedProcess[str]:
    """How a process of another user, without groups but one, fares that takes the run up."""
    code = f"""
import os
from pathlib import Path
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.run_lock import held
{before}
os.chdir({str(shell.run.path)!r})
os.setgroups([])
os.setgid({GROUP})
os.setuid(65534)
with held(RunFolder(Path("."))):
    print("held")
"""
    return subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)


@needs_root
def test_another_user_of_a_shared_folder_may_take_a_run_up(shell: Shell) -> None:
    begin(shell, embedded=True)
    (shell.run.path / ".lock").touch(0o644)
    done = taken_up_by_another(shell)
    assert done.stdout == "held\n", done.stderr


@needs_root
@pytest.mark.parametrize(
    ("umask", "fares"), [(0o002, "held"), (0o022, "UserError: . cannot be written: Permission denied")]
)
def test_a_group_may_take_a_run_up_on_nfs(shell: Shell, umask: int, fares: str) -> None:
    begin(shell, embedded=True)
    before = os.umask(umask)
    try:
        with held(shell.run):
            pass
    finally:
        os.umask(before)
    os.chown(shell.run.path / ".lock", -1, GROUP)

    done = taken_up_by_another(shell, LOCKS_OF_NFS)

    assert (done.stdout + done.stderr).splitlines()[-1].endswith(fares), done.stderr


def test_a_run_is_not_sent_to_workers_while_it_is_rolled_out_here(shell: Shell) -> None:
    begin(shell, embedded=True)
    with (shell.run.path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError) as caught:
            shell.call(run_actions.resume, str(shell.run.path), {}, embedded=False)
    assert str(caught.value) == (
        f"another command is rolling out run night-1 in {shell.run.path}; try again once it has ended"
    )
    assert shell.run.description.embedded()
    assert shell.call(run_actions.resume, str(shell.run.path), {}, embedded=False) == 0


def test_a_run_of_workers_says_that_it_goes_on_here_where_no_address_is_set(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(shell, embedded=False)
    with monkeypatch.context() as patched:
        patched.setattr("rollout_tasks.settings.Settings.broker_configured", False)

        assert would_be_embedded(shell)

    assert shell.err.splitlines()[0] == (
        "note: REDIS_URL is not set, so the run goes on here and not on the workers that it was sent to"
    )


def test_an_embedded_run_needs_no_model_where_redis_is_configured(shell: Shell) -> None:
    begin(shell, embedded=True, env_mode="math", metric="final_number")

    assert would_be_embedded(shell)
    with pytest.raises(UserError, match=r"rollouts resume with --embedded, which start the scripted model$"):
        shell.call(run_actions.resume, str(shell.run.path), {}, embedded=False)


def test_the_status_of_an_embedded_run_is_what_its_folder_has(shell: Shell) -> None:
    begin(shell, embedded=True)

    with pytest.raises(UserError) as caught:
        shell.call(run_actions.status, str(shell.run.path), {})

    assert str(caught.value) == (
        "run night-1 is embedded, so only the command that began it knows how far it is; in its folder"
        f" {shell.run.path} 0 of 1 rollouts have a verdict; if that command has ended, go on with:"
        f" rollouts resume {shell.run.path}"
    )


@pytest.mark.parametrize("wrong", ["output_dir", "script"])
def test_a_run_that_cannot_begin_is_not_announced(shell: Shell, wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = [{"text": "4", "content": "more"}] if wrong == "script" else [{"text": "4"}]
    results = shell.folder / ("items.jsonl/results" if wrong == "output_dir" else "results")
    config = shell.config({"id": "a", "answer": "4", "script": script}, env_mode="math", output_dir=str(results))

    with pytest.raises(UserError, match=r"^(--output-dir: |item 'a': script: 0\.content: is not an option)"):
        shell.call(run_actions.submit, config, embedded=True)

    assert capsys.readouterr() == ("", "")
    assert not shell.run.path.exists()


def test_no_report_names_a_model_that_was_not_asked(shell: Shell) -> None:
    begin(shell, embedded=True)
    shell.run.settle(Verdict("a#0", 1, "completed", score=1.0), written=False)

    score_run(shell.run, "exact_match")

    about = json.loads(shell.run.evaluation.read_text())["benchmark_info"]
    assert about["description"] == "run night-1, environment simulated, agent simulated, no model"
    listing(output_dir=shell.run.path.parent, as_json=True)
    shell.out, _ = shell._capsys.readouterr()
    assert json.loads(shell.out)[0]["model"] is None


def test_a_report_names_the_model_that_was_asked(shell: Shell) -> None:
    begin(shell, embedded=True, env_mode="math", metric="final_number", model={"name": "m-1"})
    shell.run.settle(Verdict("a#0", 1, "completed", answer="4"), written=False)

    score_run(shell.run, "final_number")

    about = json.loads(shell.run.evaluation.read_text())["benchmark_info"]
    assert about["description"] == "run night-1, environment math, agent tool_calling, model m-1"


@pytest.mark.parametrize(("embedded", "refused"), [(True, ""), (False, "--trust-tasks: this run goes to workers")])
@pytest.mark.parametrize(
    ("command", "resume"), [(application, "--resume"), (runs.application, "resume")], ids=["submit.py", "rollouts"]
)
def test_tasks_are_trusted_in_a_resumed_run_that_goes_on_here(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, command: typer.Typer, resume: str, embedded: bool, refused: str
) -> None:
    begin(shell, embedded=embedded)
    monkeypatch.setenv("ROLLOUT_TRUST_TASKS", "0")

    arguments = [resume, str(shell.run.path), "--trust-tasks", "--dry-run", "--json"]
    done = CliRunner().invoke(command, arguments)

    settings.cache_clear()
    assert str(done.exception or "").startswith(refused), done.exception
    assert (done.exception is None) == (not refused)
    assert os.environ["ROLLOUT_TRUST_TASKS"] == ("0" if refused else "1")
