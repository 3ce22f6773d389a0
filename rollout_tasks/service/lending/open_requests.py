"""How many requests of one holder are being answered: those that wait take up connections, which are limited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rollout_tasks.http_services.token_holders import TokenHolder
from rollout_tasks.service.lending.refusal import Refusal

_MOST = 64
_MOST_OF_LEASE = 8
"""More for each lease that the holder may have."""


class OpenRequests:
    """The requests of all holders, whichever routes they are sent to. Used in one event loop."""

    def __init__(self, most_leases: Callable[[TokenHolder], int]) -> None:
        """Takes what says how many leases a holder may have."""
        self._most_leases = most_leases
        self._of_owner: Counter[str] = Counter()

    @contextmanager
    def counted(self, holder: TokenHolder) -> Iterator[None]:
        """Counts one while the context lasts.

        Raises:
            Refusal: The holder has as many as there may be (429).
        """
        most = _MOST + _MOST_OF_LEASE * self._most_leases(holder)
        if self._of_owner[holder.owner] >= most:
            raise Refusal(429, f"{most} of your requests are being answered, the most at a time: wait for one")
        self._of_owner[holder.owner] += 1
        try:
            yield
        finally:
            self._of_owner[holder.owner] -= 1
            if not self._of_owner[holder.owner]:
                del self._of_owner[holder.owner]
