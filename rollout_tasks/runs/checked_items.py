"""The items of a run that can be rolled out and scored: the others are left out, each with a sentence that says why."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmark.items import Item, LoadedItems
from rollout_tasks.config import RunConfig
from rollout_tasks.runs import preflight
from rollout_tasks.runs.conformance_check import Checked, check
from rollout_tasks.runs.counting import Counting, silently

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckedItems:
    """Items after all checks that need no rollout."""

    benchmark: LoadedItems
    """Those that are left, and in its ``skipped`` a sentence for each that is left out."""
    environments: set[str]
    """Those of all items, also of those that are left out."""
    doubts: Sequence[str]
    """A sentence for each item that is rolled out although its score cannot be relied on."""
    checked: Checked
    """How they compare with the VMs."""


def checked_items(
    config: RunConfig,
    benchmark: LoadedItems,
    *,
    here: bool,
    count: Counting = silently,
    say: Callable[[str], None] = logger.info,
) -> CheckedItems:
    """Checks a run's items.

    Args:
        config: The run's configuration.
        benchmark: The items, as loaded.
        here: Whether the run's services and VMs start on this machine; else those of the configured Redis are asked.
        count: Shows how far that is.
        say: Takes a sentence for whoever waits for an environment, now and then.

    Raises:
        UserError: A name, an option or a package is wrong or missing.
        PoolError: Redis stopped answering.
    """
    environments = preflight.check_names(config, benchmark.items, benchmark.places)
    items, wrong = preflight.check_items(config, benchmark.items, benchmark.places, count)
    if here:
        preflight.check_here(config, items, environments)
    preflight.check_runs(config, environments, say)
    compared = Checked()
    if any(preflight.needs_desktop(config, item) for item in items):
        compared = _compared(config, items, here=here)
    doubts = [one.sentence for one in compared.doubts]
    left_out = [*benchmark.skipped, *wrong]
    if doubts and not config.desktop.include_unfaithful:
        doubted = {one.item.id for one in compared.doubts}
        items = [item for item in items if item.id not in doubted]
        left_out, doubts = [*left_out, *doubts], []
    left = replace(benchmark, items=tuple(items), skipped=tuple(left_out))
    return CheckedItems(left, environments, doubts, compared)


def _compared(config: RunConfig, items: Sequence[Item], *, here: bool) -> Checked:
    if here:
        return check(config, items, None)
    from rollout_tasks.redis_client import checked_client  # here, because it imports Redis's client

    with checked_client() as client:
        return check(config, items, client)
