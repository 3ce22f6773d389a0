"""The gateway of a worker's process, for the agents that it runs: started at first use, after the fork, and ended with it."""

from __future__ import annotations

from multiprocessing.util import Finalize

from rollout_tasks.models.gateway.gateway import Gateway
from rollout_tasks.per_process import per_process


@per_process
def shared_gateway() -> Gateway:
    """Returns this process's gateway.

    Raises:
        UserError: Its socket cannot be made.
    """
    gateway = Gateway()
    gateway.start()
    Finalize(None, gateway.close, exitpriority=0)
    return gateway
