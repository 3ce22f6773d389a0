"""Reports: what is written, that it reads back, and that data cannot break it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark import Evaluation, RolloutResult, evaluate
from benchmark.errors import BenchmarkError
from benchmark.items import Item
from benchmark.markdown_report import SCRIPTED_NOTICE, as_markdown, write_markdown
from benchmark.report import BenchmarkInfo, item_scores, read_report, write_report
from benchmark.results import ItemRow, RolloutRow
from benchmark.statistics import compare_paired
from tests.unit.benchmark import known_run

INFO = BenchmarkInfo("sums", "data/sums.jsonl", "Small sums.")


@pytest.mark.parametrize("name", ["everything", "one_rollout", "nothing"])
def test_known_runs_have_known_reports(tmp_path: Path, name: str) -> None:
    if name == "everything":
        evaluation = evaluate(known_run.ITEMS, known_run.results(), rollouts_per_item=known_run.ROLLOUTS_PER_ITEM)
    elif name == "one_rollout":
        evaluation = evaluate(known_run.ITEMS, [one for one in known_run.results() if one.index == 0])
    else:
        evaluation = evaluate(known_run.ITEMS[:1], [])

    write_report(tmp_path / "report.json", evaluation, known_run.INFO)
    write_markdown(tmp_path / "report.md", evaluation.overview, known_run.INFO)

    for kind in ("json", "md"):
        known = known_run.KNOWN_REPORTS / f"{name}.{kind}"
        assert (tmp_path / f"report.{kind}").read_bytes() == known.read_bytes()


def test_every_field_of_a_row_is_written(tmp_path: Path) -> None:
    write_report(tmp_path / "report.json", small_evaluation(2), INFO)

    (row, *_) = read_report(tmp_path / "report.json")["evaluation_results"]
    assert list(row) == [field.name for field in fields(ItemRow)]
    assert list(row["rollouts"][0]) == [field.name for field in fields(RolloutRow)]


def small_evaluation(rollouts_per_item: int = 1) -> Evaluation:
    items = [Item(str(i), f"{i} + 1?", str(i + 1), {"domain": "even" if i % 2 == 0 else "odd"}) for i in range(3)]
    results = [RolloutResult(str(i), k, answer=str(i + k + 1)) for i in range(2) for k in range(rollouts_per_item)]
    lost = RolloutResult("2", 0, "failed", failure_class="vm_lost", counted_as="infrastructure", error="VM | gone")
    return evaluate(items, [*results, lost], rollouts_per_item=rollouts_per_item)


def test_the_report_says_where_the_time_went() -> None:
    items = [Item("a", "1 + 1?", "2"), Item("b", "1 + 2?", "3")]
    results = [
        RolloutResult("a", answer="2", seconds=3.0, stages={"setup": 1.0, "model": 1.0}),
        RolloutResult("b", answer="3", seconds=7.0, stages={"setup": 1.0, "acting": 4.0}),
    ]

    evaluation = evaluate(items, results)

    assert evaluation.summary.stages == {"setup": 2.0, "model": 1.0, "acting": 4.0}
    assert "10.0 s (setup 20 %, model 10 %, acting 40 %)" in as_markdown(evaluation.overview, INFO)


def test_the_json_report_has_the_known_shape(tmp_path: Path) -> None:
    path = tmp_path / "evaluation.json"
    evaluation = small_evaluation(2)

    write_report(path, evaluation, INFO)
    report = read_report(path)

    assert report["benchmark_info"] == {
        "name": "sums",
        "description": "Small sums.",
        "data_path": "data/sums.jsonl",
        "total_items": 3,
        "scripted": False,
    }
    first = report["evaluation_results"][0]
    assert {"item_id", "question", "ground_truth", "prediction", "score", "metric_name", "details"} <= first.keys()
    assert (first["item_id"], first["score"], len(first["rollouts"])) == ("0", 0.5, 2)
    summary = report["summary"]
    wanted = {"name", "description", "total_items", "evaluated_items", "metric", "average_score", "max", "min"}
    assert wanted | {"perfect_matches", "coverage", "bounds", "confidence_interval", "groups"} <= summary.keys()
    assert summary["pass_at_k"] == {"1": pytest.approx(1 / 3), "2": pytest.approx(2 / 3)}
    assert summary["average_score"] == evaluation.summary.average_score
    assert item_scores(report) == evaluation.item_scores()
    assert compare_paired(item_scores(report), evaluation.item_scores()).p_value == 1.0


def test_what_was_left_out_is_named_beside_the_score(tmp_path: Path) -> None:
    info = replace(INFO, left_out=tuple(f"item '{number}': no <metric>" for number in range(150)))
    evaluation = small_evaluation(2)

    write_report(tmp_path / "evaluation.json", evaluation, info)
    text = as_markdown(evaluation.overview, info)

    assert read_report(tmp_path / "evaluation.json")["benchmark_info"]["left_out"] == list(info.left_out)
    assert "| Left out | 150 items of the data, which no figure here counts |" in text
    assert "## Left out\n\n- item '0': no \\<metric\\>\n- item '1'" in text
    assert "item '99'" in text
    assert "item '100'" not in text
    assert "And 50 more: the JSON report has them all." in text


def test_the_markdown_report_tells_the_run(tmp_path: Path) -> None:
    write_markdown(tmp_path / "report.md", small_evaluation(2).overview, INFO)
    text = (tmp_path / "report.md").read_text()

    assert text.startswith("# sums\n")
    for part in (
        "## 2 rollouts per item",
        "| pass@2 | 0.6667 |",
        "## Groups",
        "| even | 2 | 0.2500 |",
        "## Failures",
        "| vm_lost | 1 | infrastructure | 2#0: VM \\| gone |",
        "## Lowest scores",
        "infrastructure loss (vm_lost), missing",
        "| Coverage | 83.33 % of 6 rollouts |",
    ):
        assert part in text


def test_one_rollout_per_item_needs_no_pass_at_k() -> None:
    assert "pass@" not in as_markdown(small_evaluation().overview, INFO)


def test_the_scripted_model_is_named_first() -> None:
    scripted = BenchmarkInfo("sums", "data/sums.jsonl", scripted=True)

    assert as_markdown(small_evaluation().overview, scripted).splitlines()[0] == SCRIPTED_NOTICE
    assert SCRIPTED_NOTICE not in as_markdown(small_evaluation().overview, INFO)


@given(
    st.text(max_size=30)
    | st.sampled_from(["a|b", "a\n|b|\n# x", "<b>x</b>", "**x**", "[x](y)", "`|`", "\\|", "\x1b[1m"])
)
def test_data_cannot_break_the_tables(data: str) -> None:
    items = [Item("1", data, data + "x", {"domain": data or "none"})]
    results = [RolloutResult("1", 0, "failed", data, failure_class=data, counted_as="agent", error=data)]

    text = as_markdown(evaluate(items, results).overview, BenchmarkInfo(f"n{data}", data, data))

    lines = text.splitlines()
    assert all(line.startswith(("# ", "## ", "| ")) or not line for line in lines)
    columns = 0
    for line in lines:
        bars = line.replace("\\\\", "").replace("\\|", "").count("|")
        assert bars in {0, columns} or columns == 0
        columns = bars
    assert all(character.isprintable() for line in lines for character in line)
    assert "<b>" not in text


@pytest.mark.parametrize(
    "address", ["https://evil.example/?a", "HTTP://evil.example", "ftp://evil.example", "www.evil.example", "WWW.evil.example",
                "mailto:you@evil.example", "xmpp:you@evil.example/chat"]
)  # fmt: skip
def test_addresses_in_data_are_text_and_no_links(address: str) -> None:
    items = [Item(address, address, f"({address})", {"domain": f"*{address}*"})]

    text = as_markdown(evaluate(items, [RolloutResult(address, answer=f"see {address}")]).overview, INFO)

    assert f"see {address}" in text.replace("\\", "")
    assert not re.search(r"(?<!\\)://|www\.|(mailto|xmpp):", text, re.IGNORECASE)


def test_text_that_utf8_cannot_hold_survives(tmp_path: Path) -> None:
    answer = "half \ud800 and NUL \0 and ü"
    evaluation = evaluate([Item("1", "q", "a")], [RolloutResult("1", answer=answer)])

    write_report(tmp_path / "evaluation.json", evaluation, INFO)
    write_markdown(tmp_path / "report.md", evaluation.overview, INFO)

    assert read_report(tmp_path / "evaluation.json")["evaluation_results"][0]["prediction"] == answer
    assert "half \ufffd" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read: No such file"),
        (b"{", "is not a JSON report"),
        (b"\xff", "is not a JSON report"),
        (b"[]", "benchmark_info is missing"),
        (b'{"benchmark_info": {}, "evaluation_results": {}}', "evaluation_results is missing or of the wrong kind"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    path = tmp_path / "evaluation.json"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(BenchmarkError, match=f"evaluation.json: .*{sentence}"):
        read_report(path)


def test_a_failed_write_leaves_the_old_report_and_nothing_else(tmp_path: Path) -> None:
    """The new report does not fit under the process's limit on file sizes, as on a full disk."""
    path = tmp_path / "evaluation.json"
    write_report(path, small_evaluation(), INFO)
    before = path.read_bytes()
    script = (
        "import resource, signal, sys, pathlib\n"
        "from benchmark import evaluate\nfrom benchmark.items import Item\nfrom benchmark.report import *\n"
        "evaluation = evaluate([Item(str(i), 'q') for i in range(1000)], [])\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n    write_report(pathlib.Path(sys.argv[1]), evaluation, BenchmarkInfo('n', 'p'))\n"
        "except OSError as error:\n    print('failed:', error.strerror)\n"
    )

    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "failed: File too large"
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_report_is_plain_json(tmp_path: Path) -> None:
    write_report(tmp_path / "evaluation.json", small_evaluation(), INFO)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads((tmp_path / "evaluation.json").read_text(), parse_constant=refuse)


def test_where_the_tasks_own_code_ran_is_said() -> None:
    items = [Item(str(number), "1 + 1?", "2") for number in range(4)]
    places = ("cell", "cell", "worker", None)
    results = [RolloutResult(item.id, answer="2", task_code=place) for item, place in zip(items, places, strict=True)]

    overview = evaluate(items, results).overview

    assert overview.summary.task_code == {"cell": 2, "worker": 1}
    told = as_markdown(overview, INFO)
    assert "2 rollouts in cells, 1 rollout in the worker's own process (--trust-tasks)" in told


def test_scores_that_root_in_a_guest_could_have_forged_are_said() -> None:
    items = [Item(str(number), "1 + 1?", "2") for number in range(4)]
    known = ("attested", "unattested", "attested", None)
    results = [RolloutResult(item.id, answer="2", attestation=how) for item, how in zip(items, known, strict=True)]

    overview = evaluate(items, results).overview

    assert overview.summary.attestation == {"attested": 2, "unattested": 1}
    told = as_markdown(overview, INFO)
    assert "| Guests' own servers | 2 rollouts attested, 1 rollout unattested (an agent that was root" in told
