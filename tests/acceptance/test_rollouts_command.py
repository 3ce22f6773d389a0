"""The command `rollouts`: a run from beginning to end, lists, the doctor, and what it says to what it does not know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.runs.folder import RunFolder
from tests.acceptance.commands import MATH, rollouts
from tests.acceptance.odd_endpoint import odd_endpoint
from tests.cluster import Cluster


def test_a_run_is_rolled_out_listed_shown_and_complete(tmp_path: Path) -> None:
    ran = rollouts(tmp_path, "run", *MATH, "--limit", "3", "--run-id", "one", "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["summary"]["average_score"] == 1.0

    [listed] = json.loads(rollouts(tmp_path, "list", "--json").stdout)
    assert (listed["run_id"], listed["rollouts"], listed["score"]) == ("one", 3, 1.0)
    assert listed["environment"] == "math, py", "one of the three items names its own"
    assert "one " in rollouts(tmp_path, "list").stdout
    assert "3" in rollouts(tmp_path, "show", "one").stdout
    assert rollouts(tmp_path, "resume", "one", "--embedded").stdout.startswith("Run one is complete")
    assert rollouts(tmp_path, "rescore", "one", "--metric", "exact_match").returncode == 0
    reports = tmp_path / "results" / "one"
    assert (reports / "evaluation-exact_match.json").exists()

    for name in ("evaluation.json", "report.md"):  # as if the disk had been full
        (reports / name).unlink()
    assert rollouts(tmp_path, "rescore", "one", "--metric", "contains_answer").returncode == 0
    assert not (reports / "evaluation.json").exists(), "a report with another metric is not what the run asked for"
    assert rollouts(tmp_path, "rescore", "one", "--metric", "final_number").returncode == 0
    assert "3" in rollouts(tmp_path, "show", "one").stdout


@pytest.mark.slow
def test_a_run_that_was_not_to_be_scored_takes_any_metric_for_its_own(tmp_path: Path) -> None:
    options = ("--no-evaluate-results", "--limit", "1", "--run-id", "one")
    assert rollouts(tmp_path, "run", *MATH, *options).returncode == 0

    assert rollouts(tmp_path, "rescore", "one", "--metric", "contains_answer").returncode == 0
    assert (tmp_path / "results" / "one" / "evaluation.json").exists()


@pytest.mark.slow
def test_a_run_on_workers_is_submitted_watched_and_cancelled(tmp_path: Path, cluster: Cluster) -> None:
    cluster.start_worker()
    redis = {"REDIS_URL": cluster.environment["REDIS_URL"]}
    (tmp_path / "run.yaml").write_text(
        "{env_mode: simulated, simulated: {seconds: [0.1, 0.2], needs_vm: false}, evaluate_results: false}"
    )
    (tmp_path / "items.jsonl").write_text('{"id": "a", "question": "work"}\n{"id": "b", "question": "work"}\n')
    options = ("--config", "run.yaml", "--data-path", "items.jsonl", "--run-id")

    assert "rollouts watch two" in rollouts(tmp_path, "submit", *options, "two", **redis).stdout
    watched = rollouts(tmp_path, "watch", "two", "--json", **redis)
    assert (watched.returncode, json.loads(watched.stdout)["completed"]) == (0, 2)
    assert json.loads(rollouts(tmp_path, "status", "two", "--json", **redis).stdout)["state"] == "done"

    (tmp_path / "run.yaml").write_text("{env_mode: simulated, simulated: {seconds: [60, 60], needs_vm: false}}")
    assert rollouts(tmp_path, "submit", *options, "three", **redis).returncode == 0
    assert rollouts(tmp_path, "cancel", "three", **redis).stdout.startswith("Run three: ")
    assert json.loads(rollouts(tmp_path, "watch", "three", "--json", **redis).stdout)["state"] == "cancelled"


def test_a_list_leaves_out_broken_runs_and_shows_odd_names_as_they_are(tmp_path: Path) -> None:
    for run_id, model in (("odd", "[bold]a[/red]"), ("broken", "m"), ("scored wrongly", "m")):
        folder = RunFolder(tmp_path / "results" / run_id)
        config = RunConfig.model_validate({"env_mode": "math", "model": {"name": model}})
        folder.description.create(config, [Item("a", "?")], data_path="x", data_name="x")
    (tmp_path / "results" / "broken" / "run.json").write_text("{")
    (tmp_path / "results" / "scored wrongly" / "evaluation.json").write_text("[]")

    listed = rollouts(tmp_path, "list", COLUMNS="200")

    assert listed.returncode == 0
    assert "[bold]a[/red]" in listed.stdout
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["run", "odd"]
    assert [line.startswith("left out: results/") for line in listed.stderr.splitlines()] == [True, True]


@pytest.mark.parametrize(
    ("what", "one"),
    [("environments", "osworld"), ("agents", "tool_calling"), ("metrics", "f1_score"), ("providers", "local")],
)
def test_names_are_listed(tmp_path: Path, what: str, one: str) -> None:
    assert one in rollouts(tmp_path, "list", what).stdout.split()
    assert one in json.loads(rollouts(tmp_path, "list", what, "--json").stdout)


def test_the_doctor_says_what_is_there_and_what_to_do(tmp_path: Path) -> None:
    with odd_endpoint() as odd:
        found = rollouts(tmp_path, "doctor", "--json", OPENAI_BASE_URL=f"{odd}/served")
        lacking = rollouts(tmp_path, "doctor", REDIS_URL="redis://127.0.0.1:1/0", OPENAI_BASE_URL=f"{odd}/401")

    findings = {(one["about"], one["name"]): one for one in json.loads(found.stdout)}
    assert found.returncode == 0
    assert findings["environment", "math"]["there"]
    assert "vllm" in findings["model", "servers"]["says"]
    assert findings["service", "Redis"]["says"].startswith("REDIS_URL is not set")
    assert findings["service", "model endpoint"]["says"] == f"{odd}/served serves m1, m2"
    assert {"local", "qemu", "docker"} <= {name for about, name in findings if about == "VMs"}
    assert lacking.returncode == 1
    said = " ".join(lacking.stdout.split())
    assert "Redis at 127.0.0.1:1/0 cannot be reached" in said
    assert f"the model endpoint {odd}/401 refuses the key" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "--num-rolouts", "3"], "--num-rollouts"),
        (["watch"], "missing argument"),
        (["run", "--system-prompt-file", "/bin/true"], "--system-prompt-file: /bin/true is not UTF-8"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, words: list[str], sentence: str) -> None:
    done = rollouts(tmp_path, *words)

    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr


def test_its_version_and_completion(tmp_path: Path) -> None:
    assert rollouts(tmp_path, "--version").stdout == "0.1.0\n"
    for shell in ("bash", "zsh", "fish"):
        script = rollouts(tmp_path, "--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
        assert "_ROLLOUTS_COMPLETE" in script.stdout
    asked = {"_ROLLOUTS_COMPLETE": "complete_bash", "COMP_WORDS": "rollouts res", "COMP_CWORD": "1"}
    assert {"resume", "rescore"} <= set(rollouts(tmp_path, **asked).stdout.split()) or rollouts(
        tmp_path, **asked
    ).stdout
