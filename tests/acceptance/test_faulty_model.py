"""A model that goes wrong in the middle of a run, each item in its own way: every loss is named, and a resume gets it back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx
import pytest

from rollout_tasks.models.scripted.process import ScriptedModelProcess
from rollout_tasks.runs.item_paths import decode_id, encode_id
from tests.acceptance.refusals import run_command, tree

RUN_ID = "faulty"
ODD_IDS = [
    "algebra/linear/1",
    "数学/第三题",
    "Übung nr. 7?*|<>",
    ".hidden",
    "run.json",
    "-n",
    "item#0",
    "=2E=2E",
    "x" * 200,
    "ж" * 100,
]
"""Every one of them is fine, and none may lead out of the run's folder."""


@dataclass(frozen=True)
class Fault:
    """What the endpoint does to one item, and how its rollout is to end."""

    kind: str
    failure_class: str | None
    says: Sequence[str] = ()
    rule: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    @property
    def item_id(self) -> str:
        return self.name or self.kind


FAULTS = [
    Fault("rate_limit", "model_overload", ["answered 429: Too many requests", "(try 2 of 2)"], {"retry_after": 0.05}),
    Fault("server_error", "model_overload", ["answered 500: The server failed", "(try 2 of 2)"]),
    Fault("unavailable", "model_overload", ["answered 503: The server is overloaded", "(try 2 of 2)"]),
    Fault("hang", "model_overload", ["did not answer within 6 s (try 2 of 2)"]),
    Fault("disconnect", "model_overload", ["cannot be reached", "(try 2 of 2)"]),
    Fault("unauthorized", "model", ["answered 401: The API key is wrong"]),
    Fault("not_found", "model", ["answered 404: The model does not exist"]),
    Fault("context_overflow", "model", ["the conversation no longer fits the model's context", "answered 400"]),
    Fault("bad_json", "model", ["answered with bad JSON", "(try 2 of 2)"]),
    Fault("empty_choices", "model", ["answered without choices", "(try 2 of 2)"]),
    Fault("missing_choices", "model", ["answered without choices", "(try 2 of 2)"]),
    Fault("malformed_arguments", "parse", ["Validation failed for calculator: arguments are not JSON"]),
    Fault("unknown_tool", "parse", ["Tool 'no_such_tool' not found"]),
    Fault("malformed_arguments", None, rule={"times": 1}, name="malformed once"),
    Fault("unknown_tool", None, rule={"times": 1}, name="unknown tool once"),
    Fault("server_error", None, rule={"times": 1}, name="server error once"),
]
LOST = [fault for fault in FAULTS if fault.failure_class in {"model", "model_overload"}]
ITEM_IDS = [fault.item_id for fault in FAULTS] + ODD_IDS


def script(item_id: str) -> dict[str, Any]:
    """An item that the scripted model answers with one call and a final text."""
    call = {"name": "calculator", "arguments": {"expressions": ["2 + 3"]}}
    turns = [{"tool_calls": [call]}, {"text": "5"}]
    return {"id": item_id, "question": f"What is 2 + 3, for {item_id}?", "answer": "5", "script": turns}


@dataclass(frozen=True)
class Runs:
    """One run under all faults, judged under another, and resumed without any."""

    results: Path
    faulty: CompletedProcess[str]
    faulty_tree: Mapping[str, bytes | None]
    faulty_report: Mapping[str, Any]
    judged: CompletedProcess[str]
    resumed: CompletedProcess[str]

    @property
    def folder(self) -> Path:
        return self.results / RUN_ID

    def report(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "evaluation.json").read_text()))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    folder = tmp_path_factory.mktemp("faulty")
    results = folder / "results"
    data, faults = folder / "items.jsonl", folder / "faults.json"
    data.write_text("".join(json.dumps(script(item_id)) + "\n" for item_id in ITEM_IDS))
    faults.write_text(json.dumps([{"kind": fault.kind, "item": fault.item_id, **fault.rule} for fault in FAULTS]))
    limits = "--model-timeout 6 --max-retries 2 --max-attempts 1 --num-rollouts 4 --metric exact_match"
    command = f"--data-path items.jsonl --env-mode math --run-id {RUN_ID} {limits}".split()
    with ScriptedModelProcess(data, faults=faults) as model:
        faulty = run_command("submit.py", [*command, "--base-url", model.url], folder, {})
        before, report = tree(results), json.loads((results / RUN_ID / "evaluation.json").read_text())
        set_faults(model.url, [{"kind": "unauthorized", "role": "judge"}])
        judged = run_command("rescore.py", [RUN_ID, "--metric", "llm_judgement"], folder, {})
        set_faults(model.url, [])
        resumed = run_command("submit.py", ["--resume", RUN_ID], folder, {})
    return Runs(results, faulty, before, report, judged, resumed)


def set_faults(url: str, rules: list[dict[str, Any]]) -> None:
    httpx.post(f"{url.removesuffix('/v1')}/scripted/faults", json=rules).raise_for_status()


def rollout(report: Mapping[str, Any], item_id: str) -> dict[str, Any]:
    row = next(row for row in report["evaluation_results"] if row["item_id"] == item_id)
    return dict(row["rollouts"][0])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.item_id)
def test_each_fault_ends_in_its_class_with_one_sentence(runs: Runs, fault: Fault) -> None:
    ended = rollout(runs.faulty_report, fault.item_id)

    assert ended["failure_class"] == fault.failure_class
    for words in fault.says:
        assert words in ended["error"]
    if fault.failure_class is None:
        assert ended["score"] == 1.0, "the fault was answered, and the rollout went on"
    else:
        assert "\n" not in ended["error"]


def test_a_run_with_losses_says_how_many_and_how_to_get_them_back(runs: Runs) -> None:
    assert runs.faulty.returncode == 1
    assert f"{len(LOST)} of {len(ITEM_IDS)} rollouts were lost to the infrastructure" in runs.faulty.stderr
    assert f"rollouts resume {runs.folder}" in runs.faulty.stderr
    assert "Traceback" not in runs.faulty.stdout + runs.faulty.stderr


def test_a_judge_that_refuses_loses_scores_and_says_so(runs: Runs) -> None:
    judged = json.loads((runs.folder / "evaluation-llm_judgement.json").read_text())

    assert runs.judged.returncode == 1
    assert "answers got no score from llm_judgement" in runs.judged.stderr
    assert "HTTP 401" in runs.judged.stderr
    assert f"rollouts rescore {runs.folder} --metric llm_judgement" in runs.judged.stderr
    assert "Traceback" not in runs.judged.stdout + runs.judged.stderr
    assert rollout(judged, "run.json")["standing"] == "unscored"


def test_a_resume_rolls_out_what_was_lost_and_touches_nothing_else(runs: Runs) -> None:
    lost = {encode_id(fault.item_id) for fault in LOST}
    after = tree(runs.results)
    kept = {
        path: content
        for path, content in runs.faulty_tree.items()
        if content is not None and path.endswith("/0/result.json") and Path(path).parts[1] not in lost
    }

    assert runs.resumed.returncode == 0, runs.resumed.stderr
    assert len(kept) == len(ITEM_IDS) - len(LOST)
    assert {path: after[path] for path in kept} == kept
    assert {rollout(runs.report(), fault.item_id)["standing"] for fault in LOST} == {"scored"}


@pytest.mark.parametrize("item_id", ODD_IDS, ids=ascii)
def test_an_odd_id_works_and_stays_inside_the_runs_folder(runs: Runs, item_id: str) -> None:
    result = runs.folder / encode_id(item_id) / "0" / "attempt-1" / "result.json"

    assert rollout(runs.faulty_report, item_id)["score"] == 1.0
    assert result.is_file()
    assert result.resolve().is_relative_to(runs.folder.resolve())
    assert result.read_text().count(json.dumps(f"{item_id}#0", ensure_ascii=False)) == 1


def test_a_runs_folder_holds_its_items_and_its_own_files_and_nothing_lies_beside_it(runs: Runs) -> None:
    own = {"run.json", "items.jsonl", "evaluation.json", "events.jsonl", "report.md", "logs", ".ended", ".lock"}
    rescored = {"evaluation-llm_judgement.json", "report-llm_judgement.md"}
    items = {Path(encode_id(item_id)).parts[0] for item_id in ITEM_IDS}

    assert {path.name for path in runs.folder.iterdir()} == own | rescored | items
    assert [path.name for path in runs.results.iterdir()] == [RUN_ID]
    assert [decode_id(encode_id(item_id)) for item_id in ITEM_IDS] == ITEM_IDS
