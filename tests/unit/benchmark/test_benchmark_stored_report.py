"""Reports read row by row: whatever JSON they are written as, however much is read at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark import stored_report
from benchmark.errors import BenchmarkError
from benchmark.stored_report import read_report, scan_report
from tests.unit.benchmark import known_run

EMPTY = {"benchmark_info": {}, "evaluation_results": [], "summary": {}}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(
    rows=st.lists(values, max_size=4),
    more=st.dictionaries(st.text(max_size=3), values, max_size=2),
    first=st.booleans(),
    at_a_time=st.integers(1, 9),
    layout=st.sampled_from(
        [{}, {"indent": 1}, {"separators": (",", ":")}, {"indent": "\t", "separators": (" ,", " : ")}]
    ),
)
def test_every_layout_reads_like_the_whole(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[Any],
    more: dict[str, Any],
    first: bool,
    at_a_time: int,
    layout: dict[str, Any],
) -> None:
    report = {"benchmark_info": {"name": "n"}, "evaluation_results": rows, "summary": {"a": [1.5]}} | more
    ordered = dict(sorted(report.items(), reverse=first))
    path = tmp_path_factory.mktemp("report") / "evaluation.json"
    path.write_bytes(json.dumps(ordered, ensure_ascii=False, **layout).encode() + b" \n")
    seen: list[Any] = []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_report, "_READ_CHARACTERS", at_a_time)
        sections = scan_report(path, seen.append)
        whole = read_report(path)

    assert whole == ordered
    assert sections == {name: value for name, value in ordered.items() if name != "evaluation_results"}
    assert seen == ordered["evaluation_results"] if isinstance(ordered["evaluation_results"], list) else seen == []


def test_a_known_report_reads_like_json() -> None:
    path = known_run.KNOWN_REPORTS / "everything.json"

    assert read_report(path) == json.loads(path.read_bytes())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"summary": {}',
        '{"summary" {}}',
        '{"summary": {},}',
        "{1: 2}",
        '{"evaluation_results": [1 2]}',
        '{"evaluation_results": [1',
        '{"evaluation_results": [1,]}',
        '{"evaluation_results": [',
        "{7: {}}",
        json.dumps(EMPTY) + "{}",
        pytest.param('{"summary": ' + "[" * 5_000, id="too deep"),
    ],
)
def test_what_is_cut_short_or_no_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "evaluation.json"
    path.write_text(text)

    with pytest.raises(BenchmarkError, match="is not a JSON report"):
        scan_report(path)


@pytest.mark.parametrize(
    ("text", "section"),
    [
        ("null", "benchmark_info"),
        ("[1]", "benchmark_info"),
        (json.dumps(EMPTY | {"summary": []}), "summary"),
        (json.dumps(EMPTY | {"evaluation_results": {}}), "evaluation_results"),
    ],
)
def test_another_document_is_refused(tmp_path: Path, text: str, section: str) -> None:
    path = tmp_path / "evaluation.json"
    path.write_text(text)

    with pytest.raises(BenchmarkError, match=f"{section} is missing or of the wrong kind"):
        scan_report(path)
