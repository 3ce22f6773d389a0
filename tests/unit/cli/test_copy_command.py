"""`rollouts copy` and `rollouts export --to URL`: what they say, and that other commands work on a run that was fetched."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

pytest.importorskip("fsspec")

from rollout_tasks.errors import UserError
from rollout_tasks.runs import ending
from rollout_tasks.runs.finalize import score_run
from rollout_tasks.runs.folder import RunFolder
from tests.unit.runs.copies.odd_targets import broken_promises, manifests, tree
from tests.unit.training.ended_rollouts import end, run_of


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run that is over."""
    monkeypatch.chdir(tmp_path)
    run = run_of(tmp_path / "results/night-1", ["a", "b"], rollouts_per_item=2)
    for item, score in (("a", 1.0), ("b", 0.0)):
        for number in range(2):
            end(run, f"{item}#{number}", score)
    score_run(run, "exact_match")
    ending.record_end(run)
    return run


def command(name: str, *arguments: str) -> Result:
    done = CliRunner().invoke(import_module(f"rollout_tasks.cli.{name}").application, [*arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_a_run_goes_to_a_url_and_comes_back(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/copies/night-1"

    done = command("copy", "night-1", url)

    assert done.exit_code == 0
    assert done.stdout.startswith(f"night-1: 4 of 4 rollouts are at {url}: ")
    assert done.stderr == ""
    told = json.loads(command("copy", "night-1", url, "--json", "--follow").stdout)
    assert told | {"files_kept": 0} == {
        **{"run_id": "night-1", "url": url, "over": True, "rollouts": 4, "copied": 4, "left_out": 0, "problems": []},
        **{"files_sent": 0, "files_kept": 0, "files_removed": 0, "bytes_sent": 0},
    }
    back = command("copy", url, "fetched")
    assert back.stdout.startswith(f"{tmp_path}/fetched: 4 rollouts: ")
    assert json.loads(command("copy", url, "fetched", "--json").stdout)["files_fetched"] == 0


@pytest.mark.slow
def test_a_fetched_run_is_shown_scored_exported_and_indexed(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("sqlalchemy")
    url = f"file://{tmp_path}/copies/night-1"
    command("copy", "night-1", url)
    command("copy", url, "elsewhere/night-1")

    assert json.loads(command("show", "elsewhere/night-1", "--json").stdout)["summary"]["average_score"] == 0.5
    assert "f1_score" in command("rescore", "elsewhere/night-1", "--metric", "f1_score").stdout
    assert json.loads(command("export", "elsewhere/night-1", "--json").stdout)["rollouts"] == 4
    added = command("index", "add", "elsewhere/night-1", "--url", f"sqlite:///{tmp_path}/index.sqlite")
    assert added.stdout == "night-1: 4 new, 0 changed, 0 unchanged\n"
    assert json.loads(command("copy", url, "elsewhere/night-1", "--json").stdout)["files_fetched"] == 0


@pytest.mark.parametrize("kind", ["openai", "sharegpt", "atif"])
def test_an_export_goes_to_a_url_whole(tmp_path: Path, kind: str) -> None:
    url, target = f"file://{tmp_path}/training", tmp_path / "training"
    command("export", "night-1", "--format", kind, "--to", "here")

    done = command("export", "night-1", "--format", kind, "--to", url, "--json")

    told = json.loads(done.stdout)
    assert (told["folder"], told["rollouts"]) == (url, 4)
    there = {name: text for name, text in tree(target).items() if not name.startswith(".copied/")}
    assert there == {name: text for name, text in tree(tmp_path / "here").items() if not name.startswith(".")}
    assert broken_promises(target) == []
    assert set(manifests(target)) == {f"exports/{kind}"}
    command("export", "night-1", "--format", kind, "--min-reward", "1", "--to", url)
    assert len(tree(target)) <= len(there) + 1, "what the first one had and the second has not is removed"
    assert broken_promises(target) == []


def test_exports_of_two_formats_are_beside_each_other(tmp_path: Path) -> None:
    for kind in ("openai", "atif"):
        command("export", "night-1", "--format", kind, "--to", f"file://{tmp_path}/training")

    assert set(manifests(tmp_path / "training")) == {"exports/openai", "exports/atif"}
    with pytest.raises(UserError, match="has an export: name another folder"):
        command("copy", "night-1", f"file://{tmp_path}/training")


def test_an_export_does_not_go_to_a_copy_of_a_run(tmp_path: Path) -> None:
    command("copy", "night-1", f"file://{tmp_path}/copies")

    with pytest.raises(UserError, match=r"--to: file://.* has files that no export wrote"):
        command("export", "night-1", "--format", "openai", "--to", f"file://{tmp_path}/copies")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["night-1", "folder"], "TO: must be a URL"),
        (["file:///a/b", "file:///c/d"], "TO: must be a folder on this machine where FROM is a URL"),
        (["file:///a/b", "here", "--follow"], "--follow: is for a run's folder"),
        (["night-2", "file:///a/b"], "no run 'night-2'"),
        (["night-1", "s3://key:secret@bucket/x"], "URL: must not contain a password"),
        (["file:///nowhere/at-all", "here"], "URL: file:///nowhere/at-all has no complete copy of a run"),
    ],
)
def test_what_is_refused(arguments: list[str], why: str) -> None:
    with pytest.raises(UserError, match=why):
        command("copy", *arguments)


def test_without_fsspec_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)  # as if it were not there

    with pytest.raises(UserError, match="copies at a URL need the package fsspec: uv pip install fsspec"):
        command("copy", "night-1", "s3://bucket/runs/night-1")


def test_without_a_protocols_package_its_own_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)

    with pytest.raises(UserError, match=r"gs:// needs a package that is not installed: .*install gcsfs"):
        command("copy", "night-1", "gs://bucket/runs/night-1")
