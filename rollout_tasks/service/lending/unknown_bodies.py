"""Bodies of which it is not known yet who sends them, as their token or ticket is inside: few, small and soon."""

from __future__ import annotations

from starlette.requests import Request

from rollout_tasks.service.lending.http_requests import body_of
from rollout_tasks.service.lending.refusal import Refusal

_SECONDS = 5.0
_MOST = 64
"""Such bodies that may be waited for at a time."""


class UnknownBodies:
    """Those of one kind of request. Used in one event loop."""

    def __init__(self, largest: int) -> None:
        """Reads nothing yet.

        Args:
            largest: The most bytes of one.
        """
        self._largest = largest
        self._waiting = 0

    async def read(self, request: Request) -> bytes:
        """Returns the body of a request.

        Raises:
            Refusal: There are many already (503), or as of `body_of`.
        """
        if self._waiting >= _MOST:
            raise Refusal(503, "many requests without a token in their head are being read: try again")
        self._waiting += 1
        try:
            return await body_of(request, largest=self._largest, seconds=_SECONDS)
        finally:
            self._waiting -= 1
