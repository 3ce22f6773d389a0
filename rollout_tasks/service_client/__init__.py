"""A client of the desktop service (`rollouts desktops serve`), with and without coroutines. Needs httpx alone.

with DesktopClient("http://host:8770", token) as client, client.lease(item="open-file") as lease:
    step = lease.act("computer", {"action": "screenshot"})
"""

from rollout_tasks.service_client.answers import LeaseState, Observation, Outcome, Step
from rollout_tasks.service_client.coroutines import AsyncDesktopClient, AsyncLease
from rollout_tasks.service_client.errors import (
    DesktopServiceError,
    LeaseOver,
    NoDesktop,
    QuotaUsedUp,
    ServiceUnreachable,
)
from rollout_tasks.service_client.threads import DesktopClient, Lease

__all__ = [
    "AsyncDesktopClient",
    "AsyncLease",
    "DesktopClient",
    "DesktopServiceError",
    "Lease",
    "LeaseOver",
    "LeaseState",
    "NoDesktop",
    "Observation",
    "Outcome",
    "QuotaUsedUp",
    "ServiceUnreachable",
    "Step",
]
