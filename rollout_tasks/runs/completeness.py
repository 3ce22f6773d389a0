"""Whether a run has a verdict on each of its rollouts, as its folder alone shows it, and what to do where it has not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmark.stored_report import scan_report
from rollout_tasks.runs import ending
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import rollout_id_of, rollout_ids


def gap(folder: RunFolder) -> str:
    """Returns why a run cannot be scored yet and what to do, as the rest of a sentence; empty when it can be.

    Raises:
        UserError: A file of the run is missing or broken.
        BenchmarkError: The report cannot be read.
    """
    if missing := lacking(folder):
        return (
            f"{missing}; see how far it is with: rollouts status {folder.path},"
            f" or roll them out with: rollouts resume {folder.path}"
        )
    return ""


def lacking(folder: RunFolder) -> str:
    """Returns how many rollouts may still get a verdict, as a clause; empty when none may, as in a run that is over.

    Runs of earlier versions do not record their end. In those, rollouts that were cancelled before they began leave nothing in
    the folder but their place in the run's report: they count as having a verdict, until a resume has rolled out something
    that the report counts as lost.

    Raises:
        UserError: A file of the run is missing or broken.
        BenchmarkError: The report cannot be read.
    """
    if ending.is_over(folder):
        return ""
    every = rollout_ids(folder.description.each_item(), folder.description.config().rollouts_per_item)
    missing: set[str] = set()
    good: set[str] = set()
    for name in every:
        verdict = folder.finished(name)
        if verdict is None:
            missing.add(name)
        elif not verdict.worth_repeating:
            good.add(name)
    if missing and folder.evaluation.exists():
        lost = _lost(folder)
        if good.isdisjoint(lost):  # else the report is older than what a resume has rolled out since
            missing -= {name for name, standing in lost.items() if standing == "cancelled"}
    return f"{len(missing)} of {len(every)} rollouts have no verdict" if missing else ""


def _lost(folder: RunFolder) -> dict[str, str]:
    """Returns the rollouts that the run's report counts as cancelled or lost to the infrastructure, and as which."""
    found: dict[str, str] = {}

    def note(row: Mapping[str, Any]) -> None:
        for rollout in row["rollouts"]:
            if rollout["standing"] in {"cancelled", "infrastructure_loss"}:
                found[rollout_id_of(row["item_id"], rollout["index"])] = rollout["standing"]

    scan_report(folder.evaluation, note)
    return found
