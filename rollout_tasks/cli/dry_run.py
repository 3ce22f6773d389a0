"""What a submission would do, without doing it: its checks, and what its items need."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rollout_tasks.cli.program import DONE, print_json
from rollout_tasks.runs import model_check, preflight
from rollout_tasks.runs.conformance_check import Checked
from rollout_tasks.runs.submission import Submission
from rollout_tasks.runs.submit import check_free, check_not_on_workers
from rollout_tasks.unicode_text import one_line


def show_dry_run(submission: Submission, environments: set[str], checked: Checked, *, here: bool, as_json: bool) -> int:
    """Checks all that a submission would check, and shows what the run would need.

    Args:
        submission: The run.
        environments: The names of its environments.
        checked: How its items compare with the VMs.
        here: Whether it would be embedded.
        as_json: Whether JSON is printed.

    Raises:
        UserError: The submission would be refused.
    """
    config = submission.config
    if not submission.resumed:
        preflight.check_output_dir(submission.folder.path)
    needed = preflight.needs(config, submission.items)
    if not as_json:
        for name, needs in needed.items():
            sys.stdout.write(f"The items in {name} need: {one_line(_listed(needs))}\n")
    model = preflight.needs_model(config, environments)
    if model and here:
        model_check.check_no_pool(config)
    if model and here and model_check.model_address(config) is None:
        model_check.check_scripts(submission.config, submission.items)
        config = config.model_copy(update={"model": config.model.model_copy(update={"scripted": True})})
    elif model:
        config = model_check.check_model(config)
    model_check.check_cost(config, needs_model=model, spent=submission.spent)
    if here:
        check_not_on_workers(submission)
    else:
        _check_broker(submission)
    found: dict[str, Any] = {
        "items": len(submission.items),
        "rollouts": len(submission.todo),
        "environments": sorted(environments),
        "metric": config.metric,
        "model": config.model.answerer if model else None,
        **{role.role: role.model.name for role in config.model_roles},
        "embedded": here,
    }
    if as_json:
        from rollout_tasks.cli import conformance_table  # here, because it draws with rich

        found |= {"needs": needed} if needed else {}
        found |= {"conformance": conformance_table.as_json(checked.found)} if checked.found else {}
        print_json(found)
    else:
        shown = ", ".join(f"{key}: {value}" for key, value in found.items())
        sys.stdout.write(f"Nothing was enqueued. {one_line(shown)}\n")
    return DONE


def _listed(needs: Mapping[str, Any]) -> str:
    """Returns needs as one line: ``programs: chrome 65, gimp 27; downloads: 447``."""
    parts = []
    for kind, value in needs.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{name} {count}" for name, count in value.items())
        if value:
            parts.append(f"{kind}: {value}")
    return "; ".join(parts) or "nothing"


def _check_broker(submission: Submission) -> None:
    from rollout_tasks.redis_client import checked_client  # here, because it imports Redis's client
    from rollout_tasks.runs.store import RunStore

    client = checked_client()
    check_free(submission, RunStore(client))
    if preflight.needs_vm(submission.config, submission.items):
        preflight.check_pool(submission.config, client)
