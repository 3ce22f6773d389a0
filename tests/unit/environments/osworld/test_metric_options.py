"""Options that metrics do not read are found in desktop-env's own source, and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item
from desktop_image.conformance.facts import Facts
from rollout_tasks.environments.osworld.conformance import conformance
from rollout_tasks.environments.osworld.metric_options import unread_options

DOCX = {"type": "vm_file", "path": "/home/user/a.docx", "dest": "a.docx"}


def unread(metric: Any, options: Any) -> list[str]:
    return list(unread_options({"func": metric, "result": DOCX, "options": options}))


@pytest.mark.parametrize(
    ("metric", "options"),
    [
        ("compare_docx_files", {"ignore_blanks": False, "content_only": True}),
        ("compare_pptx_files", {"examine_font_size": False, "examine_run_count": False}),
        ("compare_config", {"containment_ok": True}),
        ("check_structure_sim_with_threshold", {"ssim_threshold": 0.8}),
        ("compare_table", {"rules": []}),
        ("compare_references", {"content_only": True, "reference_base_result": 0.6}),
        (["compare_docx_files", "compare_text_file"], [{}, None]),
        ("no_such_metric", {"anything": 1}),
        ("infeasible", {"anything": 1}),
    ],
)
def test_what_a_metric_reads_is_not_named(metric: Any, options: Any) -> None:
    assert unread(metric, options) == []


def test_what_it_ignores_is_named_with_its_place() -> None:
    assert unread("compare_docx_files", {"ignore_blank": True}) == [
        "desktop-env's compare_docx_files does not read the option ignore_blank (evaluator.options)"
    ]
    assert unread(
        ["compare_docx_files", "compare_pptx_files"], [{"ignore_case": True}, {"examine_bold": 1, "examine_font": 2}]
    ) == [
        "desktop-env's compare_pptx_files does not read the option examine_bold (evaluator.options[1])",
        "desktop-env's compare_pptx_files does not read the option examine_font (evaluator.options[1])",
    ]


def test_a_task_with_an_ignored_option_is_not_faithful() -> None:
    def task(**options: Any) -> Item:
        evaluator = {"func": "compare_text_file", "result": DOCX, "expected": DOCX, "options": options}
        return Item(id="a", question="Do it", metadata={"evaluator": evaluator})

    guest = Facts({"file": frozenset({"/home/user"})})

    typed, mistyped = conformance([task(ignore_case=True), task(ignore_cases=True)], [guest])

    assert "does not read" not in str(typed.reasons)
    assert mistyped.verdict != "faithful"
    assert "desktop-env's compare_text_file does not read the option ignore_cases" in mistyped.reasons[-1]


def test_osworlds_own_tasks_give_no_other_option_than_known(shared_data: Path) -> None:
    found = {
        sentence
        for file in (shared_data / "osworld" / "examples").glob("*/*.json")
        for sentence in unread_options(json.loads(file.read_text(encoding="utf-8"))["evaluator"])
    }

    assert found == set()
