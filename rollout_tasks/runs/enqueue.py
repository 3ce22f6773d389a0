"""Sends rollouts as Celery messages: one flat chord for a run, plain messages for lost rollouts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from celery.canvas import Signature
from celery.utils import uuid

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.queues import finalize_task, rollout_task
from rollout_tasks.registry import environment, environment_name, known_environments
from rollout_tasks.runs.counting import Counting, silently
from rollout_tasks.runs.store_format import MIN_VERSION
from rollout_tasks.runs.verdict import split_rollout_id


@lru_cache(maxsize=1)
def rollout_queues() -> tuple[str, ...]:
    """Returns the queues of all environments' rollouts, except of those that cannot be loaded here."""
    queues = set()
    for name in known_environments():
        with suppress(UserError):
            queues.add(environment(name).queue)
    return tuple(sorted(queues))


def send_chord(
    run_id: str,
    config: RunConfig,
    items: Mapping[str, Item],
    rollout_ids: Sequence[str],
    count: Counting = silently,
) -> None:
    """Sends every rollout in one chord whose callback finalises the run.

    The messages are those of Celery's `chord`, which makes all of them, 6 KB each, before it sends the first. Here each
    is made when it is sent, so that the size of a run does not matter.

    Args:
        run_id: The run.
        config: Its configuration.
        items: Items by id; at least those of the rollouts.
        rollout_ids: The rollouts to send.
        count: Shows how many are sent.
    """
    group_id = uuid()
    callback = finalize_task(run_id)
    app = callback.app
    callback.on_error(finalize_task(run_id))
    callback.freeze(group_id=group_id)
    app.backend.set_chord_size(group_id, len(rollout_ids))
    with app.producer_or_acquire() as producer:
        for index, signature in enumerate(_signatures(run_id, config, items, count("sending rollouts", rollout_ids))):
            signature.apply_async(
                producer=producer, add_to_parent=False, group_id=group_id, group_index=index, chord=callback
            )


def send_rollouts(run_id: str, config: RunConfig, items: Mapping[str, Item], rollout_ids: Iterable[str]) -> int:
    """Sends rollouts outside a chord; returns how many."""
    sent = 0
    for signature in _signatures(run_id, config, items, rollout_ids):
        signature.apply_async()
        sent += 1
    return sent


def _signatures(
    run_id: str, config: RunConfig, items: Mapping[str, Item], rollout_ids: Iterable[str]
) -> Iterable[Signature]:
    queues: dict[str, str] = {}
    for rollout_id in rollout_ids:
        item_id, _ = split_rollout_id(rollout_id)
        name = environment_name(items[item_id], config)
        if name not in queues:
            queues[name] = environment(name).queue
        # The headers tell the reconciler which rollout this is, and a worker whether it understands the message.
        headers = {"run": run_id, "rollout": rollout_id, "min_version": MIN_VERSION}
        yield rollout_task(run_id, rollout_id, queues[name]).set(headers=headers)


def queues_of(config: RunConfig, items: Iterable[Item]) -> list[str]:
    """Returns the queues of some items' rollouts."""
    names = {environment_name(item, config) for item in items}
    return sorted({environment(name).queue for name in names})
