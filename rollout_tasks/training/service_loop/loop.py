"""The service loop: keeps a number of rollouts out, item by item, and says at any moment what it waits for.

Each item's group is a run of its own, so that an ended rollout makes room for the next item's at once: no batch and no group is
waited for. The journal knows what was begun; whatever dies, the loop goes on there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import redis
from kombu.exceptions import OperationalError

from benchmark.errors import BenchmarkError
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.runs.description import remove_unmade
from rollout_tasks.runs.states import Progress
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.waits import pool_status, waits_for
from rollout_tasks.training.sampling_policy import Sampling, SamplingPolicy
from rollout_tasks.training.service_loop.checkpoints import Checkpoints
from rollout_tasks.training.service_loop.group_run import GroupRun, submit_group
from rollout_tasks.training.service_loop.item_sources import ItemSource, OfferedItem, RefusedItem
from rollout_tasks.training.service_loop.journal import Begun, Journal
from rollout_tasks.training.service_loop.state_file import Doing, ServiceState
from vm_pool.errors import PoolError

logger = logging.getLogger(__name__)

_TRY_AGAIN = 2
"""How often rollouts that the infrastructure lost are submitted once more, besides the attempts that each has."""
_LOST_GROUPS = 2
"""After so many groups in a row that the infrastructure lost whole, one group at a time is tried, with pauses."""
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
"""Seconds."""
_CHECKPOINT_SECONDS = 5.0

_MOST_AT_A_TIME = 20
"""Groups that one step begins: others are looked at in between."""

_OUTSIDE = (redis.RedisError, OperationalError, PoolError, UserError, BenchmarkError, OSError)
"""What services, data and files raise that may be mended while the loop waits."""


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What the loop is to do."""

    name: str
    """Begins the ids of its runs."""
    config: RunConfig
    """What all its runs have in common."""
    in_flight: int
    """Rollouts that are out at a time."""
    ends_when_idle: bool = False
    """Whether it ends when there is nothing more to do, instead of waiting for more."""


class ServiceLoop:
    """One service loop; `step` is called again and again by its owner, which also says when it has to drain."""

    def __init__(
        self,
        options: ServiceOptions,
        journal: Journal,
        source: ItemSource,
        policy: SamplingPolicy,
        store: RunStore,
        *,
        checkpoints: Checkpoints | None = None,
        on_end: Callable[[GroupRun], None] | None = None,
    ) -> None:
        """Looks at nothing yet.

        Args:
            options: What it is to do.
            journal: Its journal.
            source: Where its items come from.
            policy: How often items are rolled out.
            store: The run store.
            checkpoints: The checkpoints that its model pool gets; None for none.
            on_end: Called with each group that has ended, before that is written down: it may be called again after a kill.
        """
        self._options = options
        self._journal = journal
        self._source = source
        self._policy = policy
        self._store = store
        self._checkpoints = checkpoints
        self._on_end = on_end
        self._output_dir = Path(options.config.output_dir).resolve()
        self._groups: dict[int, GroupRun] = {}
        self._progress: dict[int, Progress] = {}
        self._recovered = False
        self._lost_in_a_row = 0
        self._offered: OfferedItem | None = None
        """What the source has offered and could not be submitted yet."""
        self._pause = _FIRST_PAUSE
        self._not_before = 0.0
        self._blocked = ""
        self._next_look = 0.0
        self._weights = ""
        self._trouble = ""
        """What is wrong with a group, as a sentence; empty if nothing is."""
        self.draining = False

    @property
    def is_over(self) -> bool:
        """Whether it has drained."""
        return self.draining and self._recovered and not self._groups

    def step(self) -> ServiceState:
        """Does what can be done now, and returns what it is doing; takes no longer than the services that it asks."""
        try:
            if not self._recovered:
                self._recover()
            self._look_at_checkpoints()
            self._look_at_groups()
            doing, because = self._begin_groups()
        except _OUTSIDE as error:
            self._hold_off(str(error))
            doing, because = "blocked", self._blocked
        return ServiceState(
            doing=doing,
            because="; ".join(filter(None, (because, self._trouble))),
            groups_under_way=len(self._groups),
            rollouts_out=self._out(),
            groups_ended=self._journal.ended,
            rollouts_counted=self._journal.rewards,
            weights=self._weights,
        )

    def _recover(self) -> None:
        """Takes over the groups that the journal has as begun: those that were never submitted are withdrawn."""
        for number, begun in sorted(self._journal.under_way.items()):
            if number in self._groups:
                continue
            group = GroupRun(begun, self._output_dir)
            if group.was_submitted:
                self._groups[number] = group
            else:
                remove_unmade(group.folder.path)
                self._journal.withdraw(number)
        self._recovered = True

    def _look_at_checkpoints(self) -> None:
        if self._checkpoints is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _CHECKPOINT_SECONDS
        try:
            if said := self._checkpoints.look():
                logger.info("%s", said)
            self._weights = self._checkpoints.progress()
        except UserError as error:  # rollouts go on with the weights that there are
            self._weights = str(error)

    def _look_at_groups(self) -> None:
        """Looks at each group; one that cannot be read or submitted keeps nothing else from going on."""
        trouble = ""
        for group in list(self._groups.values()):
            try:
                self._look_at(group)
            except (redis.RedisError, OperationalError):
                raise  # it is the same for all others
            except _OUTSIDE as error:
                trouble = trouble or f"group {group.begun.number}: {error}"
        self._trouble = trouble

    def _look_at(self, group: GroupRun) -> None:
        if not group.was_submitted and self._store.state(group.begun.run_id) is None:
            self._journal.withdraw(group.begun.number)
            self._forget(group)
            return
        progress = self._progress[group.begun.number] = group.progress(self._store)
        if group.needs_resume(progress):
            group.resume()
        elif group.is_over(progress):
            self._end(group, cancelled=progress.state == "cancelled")
        elif progress.pending and not group.stopped_early:
            rewards = group.new_rewards(progress, self._options.config.metric)
            if rewards and self._policy.is_enough(rewards, group.begun.rollouts):
                group.stop(self._store)

    def _end(self, group: GroupRun, *, cancelled: bool) -> None:
        ended = group.end()
        if not cancelled and group.try_again(ended, _TRY_AGAIN):
            return
        if self._on_end is not None:
            self._on_end(group)
        self._journal.end(ended)
        self._forget(group)
        self._source.end(group.begun.key)
        if ended.rewards:
            self._lost_in_a_row, self._pause = 0, _FIRST_PAUSE
        elif "infrastructure_loss" in ended.left_out:
            self._lost_in_a_row += 1
            if self._lost_in_a_row >= _LOST_GROUPS:
                self._hold_off(
                    f"{self._lost_in_a_row} groups in a row were lost to the infrastructure, the last in {group.folder.report}"
                )

    def _forget(self, group: GroupRun) -> None:
        del self._groups[group.begun.number]
        self._progress.pop(group.begun.number, None)

    def _hold_off(self, why: str) -> None:
        """Begins nothing for a while, and for twice as long the next time."""
        if time.monotonic() >= self._not_before:
            self._not_before = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._blocked = why

    def _begin_groups(self) -> tuple[Doing, str]:
        """Begins as many groups as there is room for; returns what the loop is doing."""
        for _ in range(_MOST_AT_A_TIME):
            if self.draining:
                break
            if time.monotonic() < self._not_before:
                return "blocked", self._blocked
            if self._lost_in_a_row >= _LOST_GROUPS and self._groups:
                return "blocked", f"one group is tried: {self._blocked}"
            if self._out() and self._out() >= self._options.in_flight:
                return "busy", self._waits()
            under_way = {begun.key for begun in self._journal.under_way.values()}
            offered = self._offered or self._source.next(self._journal.keys, under_way)
            if offered is None:
                break
            if isinstance(offered, RefusedItem):
                logger.warning("left out: %s", offered.problem)
                self._source.end(offered.key)
            else:
                self._offered = offered
                try:
                    self._begin(offered)
                finally:
                    if offered.key in self._journal.keys:  # it was submitted, even if that was not seen to its end
                        self._offered = None
        if self._groups:
            return ("draining" if self.draining else "busy"), self._waits()
        if self.draining:
            return "stopped", "everything that was begun has ended"
        self.draining = self.draining or self._options.ends_when_idle  # a signal may have set it meanwhile
        return "idle", self._source.idle

    def _begin(self, offered: OfferedItem) -> None:
        """Submits an item's group.

        Raises:
            UserError: It could not be submitted.
        """
        sampling = self._sampling(offered.item.id)
        number = self._journal.last_number + 1
        while self._is_taken(run_id := f"{self._options.name}-{number:06d}"):
            number += 1
        most_turns = self._options.config.limits.max_turns
        begun = Begun(
            number, offered.key, offered.item.id, run_id, sampling.rollouts, min(sampling.max_turns, most_turns)
        )
        self._journal.begin(begun)
        group = GroupRun(begun, self._output_dir)
        try:
            submit_group(begun, offered.item, self._options.config)
        except BaseException:
            if not group.was_submitted:
                self._journal.withdraw(number)
            raise
        finally:
            if number in self._journal.under_way:
                self._groups[number] = group
        if not self._lost_in_a_row:
            self._pause = _FIRST_PAUSE

    def _is_taken(self, run_id: str) -> bool:
        """Returns whether somebody else has a run of that name."""
        return (self._output_dir / run_id).exists() or self._store.state(run_id) is not None

    def _sampling(self, item_id: str) -> Sampling:
        """Asks the policy, which may be a user's.

        Raises:
            UserError: It failed, or what it says makes no sense.
        """
        try:
            sampling = self._policy.sampling(self._journal.past(item_id))
        except Exception as error:
            raise UserError(f"--policy: it failed for item {item_id}: {type(error).__name__}: {error}") from error
        if not all(type(number) is int and number > 0 for number in (sampling.rollouts, sampling.max_turns)):
            raise UserError(f"--policy: it wants {sampling} for item {item_id}; both must be whole numbers from 1")
        return sampling

    def _out(self) -> int:
        """Returns how many rollouts are out: of each group as many as have no verdict, as far as is known."""
        counts = ((self._progress.get(number), group) for number, group in self._groups.items())
        return sum(group.begun.rollouts if progress is None else progress.pending for progress, group in counts)

    def _waits(self) -> str:
        """Returns what the rollouts that are out wait for."""
        known = [progress for progress in self._progress.values() if progress.pending]
        if known and not any(progress.running for progress in known):
            config = self._options.config
            status = pool_status(self._store.client, config.vm.pool) if config.vm.use_pool else None
            if sentence := waits_for(self._store, known[0], status):
                return sentence
        return "rollouts are under way"
