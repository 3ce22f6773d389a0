"""How many WebSockets are open, of each lease and of each holder: each costs memory, so both are limited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rollout_tasks.service.lending.refusal import Refusal


class OpenSockets:
    """The WebSockets of one kind. Used in one event loop."""

    def __init__(self, most_of_lease: int) -> None:
        """Counts nothing yet.

        Args:
            most_of_lease: How many may be open for one lease at a time; its owner may have as many for each lease of the quota.
        """
        self._most_of_lease = most_of_lease
        self._of_lease: Counter[str] = Counter()
        self._of_owner: Counter[str] = Counter()

    @contextmanager
    def counted(self, lease_id: str, owner: str, most_leases: int) -> Iterator[None]:
        """Counts one while the context lasts.

        Args:
            lease_id: The lease.
            owner: Whose it is.
            most_leases: How many leases the owner may have. Sockets of leases that are over count, too.

        Raises:
            Refusal: There are as many as there may be (429).
        """
        if self._of_lease[lease_id] >= self._most_of_lease:
            raise Refusal(429, f"the lease has {self._most_of_lease} of these connections, the most: close one first")
        most = self._most_of_lease * max(1, most_leases)
        if self._of_owner[owner] >= most:
            raise Refusal(429, f"you have {most} of these connections, the most: close one first")
        counts = ((self._of_lease, lease_id), (self._of_owner, owner))
        for count, name in counts:
            count[name] += 1
        try:
            yield
        finally:
            for count, name in counts:
                count[name] -= 1
                if not count[name]:
                    del count[name]
