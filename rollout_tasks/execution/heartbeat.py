"""The heartbeat of a running rollout: keeps its broker message, its VM's lease and its claim fresh.

One daemon thread per worker child. It also reports a lost lease, a cancelled run, or a claim that another worker has
taken over. When the main thread is stuck past its hard deadline, it kills the process, so that the broker hands the
rollout to another. `VMHeartbeat` is the part of it that knows of the VM alone.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import redis

from rollout_tasks.broker.lua_scripts import SCRIPTS
from rollout_tasks.errors import FailureClass
from rollout_tasks.interruption import Interruption
from rollout_tasks.per_process import per_process
from rollout_tasks.redis_client import connect
from rollout_tasks.runs.store import RunStore
from vm_pool.errors import LeaseLost, PoolError
from vm_pool.lease import Lease

logger = logging.getLogger(__name__)

UNACKED_INDEX = "unacked_index"
"""The key of kombu's Redis transport for when each delivered message was last known to be worked on."""


LOOK_SECONDS = 0.5
"""How often to check whether a lease must be renewed at once, because Redis may have been restarted."""


class VMUse(Protocol):
    """Someone's use of a VM, as a heartbeat keeps it up and reports to it."""

    interruption: Interruption
    lease: Lease | None
    """None while there is none to renew."""

    @property
    def name(self) -> str:
        """What it is in the log, as in the id of a rollout."""


_Use = TypeVar("_Use", bound=VMUse)


@dataclass(slots=True)
class Pulse:
    """What the heartbeat keeps fresh for one rollout, and reports to it."""

    run_id: str
    rollout_id: str
    token: str
    interruption: Interruption
    delivery_tag: str | None
    lease: Lease | None = None
    last_beat: float = field(default_factory=time.monotonic)
    superseded: bool = False

    @property
    def name(self) -> str:
        """See `VMUse`."""
        return self.rollout_id

    @property
    def silent(self) -> float:
        """Seconds since the claim was last refreshed."""
        return time.monotonic() - self.last_beat


class VMHeartbeat(Generic[_Use]):
    """A thread that renews a VM's lease, and kills this process if its main thread is stuck past its hard deadline.

    `pulse` is what it keeps fresh, None in between.
    """

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.pulse: _Use | None = None
        self._renewal_failing = False
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def beat(self, pulse: _Use) -> None:
        """Refreshes everything once."""
        if pulse.lease is not None:
            self._renew(pulse, pulse.lease)

    def _run(self) -> None:
        while True:
            self._wait()
            pulse = self.pulse
            if pulse is not None:
                self._kill_if_stuck(pulse)
                try:
                    self.beat(pulse)
                except Exception:  # a defect, but without a heartbeat every later rollout would count as abandoned
                    logger.exception("heartbeat of %s: a beat failed; trying again", pulse.name)

    def _wait(self) -> None:
        """Waits until the next beat is due, or a lease is in doubt."""
        until = time.monotonic() + self.interval
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_SECONDS))
            pulse = self.pulse
            lease = pulse.lease if pulse is not None else None
            if lease is not None and lease.doubtful:
                return

    def _renew(self, pulse: _Use, lease: Lease) -> None:
        try:
            lease.renew()
        except LeaseLost as lost:
            if pulse.lease is lease:
                pulse.interruption.request(FailureClass.LEASE_LOST, str(lost))
        except PoolError as error:
            if not self._renewal_failing:
                logger.warning("heartbeat of %s: lease not renewed: %s; trying again", pulse.name, error)
            self._renewal_failing = True
            return
        self._renewal_failing = False

    def _kill_if_stuck(self, pulse: _Use) -> None:
        deadline = pulse.interruption.hard_deadline
        if deadline is not None and time.monotonic() > deadline:
            logger.error("%s: stuck past its deadline; killing this worker process", pulse.name)
            os.kill(os.getpid(), signal.SIGKILL)


class Heartbeat(VMHeartbeat[Pulse]):
    """The heartbeat thread of rollouts."""

    def __init__(self, interval: float) -> None:
        self._failing = False
        self._client: redis.Redis = connect(tries=1, socket_timeout=max(interval, 2.0))
        self._store = RunStore(self._client)
        super().__init__(interval)

    def beat(self, pulse: Pulse) -> None:
        """Refreshes everything once; a lease that cannot be renewed does not stop the rest."""
        super().beat(pulse)
        try:
            if pulse.delivery_tag is not None:
                SCRIPTS.run(self._client, "work_on", [UNACKED_INDEX], [pulse.delivery_tag])
            news = self._store.beat(pulse.run_id, pulse.rollout_id, pulse.token)
        except redis.RedisError as error:
            if not self._failing:
                logger.warning("heartbeat of %s: Redis failed: %s; trying again", pulse.rollout_id, error)
            self._failing = True
            return
        if self._failing:
            logger.warning("heartbeat of %s: Redis works again", pulse.rollout_id)
        self._failing = False
        pulse.last_beat = time.monotonic()
        if self.pulse is not pulse:
            return
        if news == "superseded":
            pulse.superseded = True
            pulse.interruption.request(FailureClass.WORKER_LOST, "another worker has taken this rollout over")
        elif news == "cancelling":
            pulse.interruption.request(FailureClass.CANCELLED, "the run was cancelled")


@per_process
def heartbeat(interval: float) -> Heartbeat:
    """Returns this process's heartbeat, started at the first call; a forked child gets its own."""
    return Heartbeat(interval)
