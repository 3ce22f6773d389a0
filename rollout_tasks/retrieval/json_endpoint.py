"""An HTTP endpoint that takes and gives JSON: tries again what may pass, within a deadline, and bounds what it reads."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from benchmark.backoff import passing, pause, retry_after
from benchmark.deadline import Deadline, TooSlowError
from benchmark.http_client import BAD_PROXY, UnusableProxy, http_client, without_key
from benchmark.response_body import UnreadableBodyError, read_text
from rollout_tasks.per_process import per_process
from rollout_tasks.retrieval.errors import RetrievalError
from rollout_tasks.strict_json import parse_json

if TYPE_CHECKING:
    import httpx2

TRIES = 5
TRY_SECONDS, CALL_SECONDS = 60.0, 180.0
"""The longest time for one try, and for a call with all tries and pauses."""
LARGEST_RESPONSE = 64 << 20
"""Bytes."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 20.0
"""Seconds: the longest pause after the first try, and the longest of all."""
_SHOWN = 200
"""Characters of an answer that a message quotes."""
_NO_KEY = "none"
_Answer = TypeVar("_Answer")


class NotAnAnswer(ValueError):
    """What an endpoint answered is of no use; the message completes "the endpoint answered"."""


@dataclass(frozen=True, slots=True)
class JsonEndpoint:
    """Where requests go, and what the endpoint is called in messages."""

    url: str
    """Without user, password and query."""
    key: str
    """Sent as a bearer token; empty if there is none."""
    what: str
    """As in ``embeddings``."""

    def post(self, fields: dict[str, Any], read: Callable[[Any], _Answer]) -> _Answer:
        """Sends one request; tries again while that may help.

        Args:
            fields: The body.
            read: Returns what the answer means, or raises `NotAnAnswer`.

        Raises:
            RetrievalError: No try gave an answer.
        """
        deadline = time.monotonic() + CALL_SECONDS
        body = json.dumps(fields).encode()
        for number in range(1, TRIES + 1):
            try:
                return self._try(body, read, min(TRY_SECONDS, max(0.001, deadline - time.monotonic())))
            except _Failed as failed:
                delay = pause(number, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, requested_pause=failed.retry_after)
                last = number == TRIES or time.monotonic() + delay >= deadline
                if last or not failed.passing:
                    tries = f" ({number} tries)" if number > 1 else ""
                    sentence = f"{self.what} at {self.url}: {failed}{tries}"
                    raise RetrievalError(without_key(sentence, self.key)) from failed
            time.sleep(delay)
        raise AssertionError("unreachable")

    def _try(self, body: bytes, read: Callable[[Any], _Answer], seconds: float) -> _Answer:
        import httpx2  # here, because it is slow to import, and a lexical search asks nobody

        try:
            status, headers, text = self._send(body, seconds)
        except (httpx2.TimeoutException, TooSlowError) as error:
            raise _Failed(f"no answer within {seconds:.3g} s") from error
        except httpx2.HTTPError as error:
            raise _Failed(f"cannot be reached: {str(error) or type(error).__name__}") from error
        except (UnusableProxy, httpx2.InvalidURL):  # whose text may contain a proxy's password
            raise _Failed(f"cannot be asked: the address is invalid, or {BAD_PROXY}", passing=False) from None
        except UnreadableBodyError as error:
            raise _Failed(f"it answered {error}", passing=False) from error
        if not 200 <= status < 300:
            said = f": {' '.join(without_key(text, self.key).split())[:_SHOWN]}" if text.strip() else ""
            raise _Failed(f"HTTP {status}{said}", passing=passing(status), retry_after=retry_after(headers))
        try:
            return read(parse_json(text))
        except NotAnAnswer as error:
            raise _Failed(f"it answered {error}", passing=False) from error
        except (ValueError, RecursionError) as error:
            shown = without_key(text, self.key)[:_SHOWN]
            raise _Failed(f"it answered {shown!r}, which is not JSON", passing=False) from error

    def _send(self, body: bytes, seconds: float) -> tuple[int, httpx2.Headers, str]:
        client = _client(self.key, self.url)
        headers = {"Content-Type": "application/json"}
        request = client.build_request("POST", self.url, content=body, headers=headers, timeout=Deadline(seconds))
        if not self.key:
            request.headers.pop("Authorization", None)
        with closing(client.send(request, stream=True, follow_redirects=False)) as response:
            return response.status_code, response.headers, read_text(response, LARGEST_RESPONSE)


class _Failed(Exception):
    """One try failed."""

    def __init__(self, sentence: str, *, passing: bool = True, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.passing = passing
        self.retry_after = retry_after


@per_process
def _client(key: str, url: str) -> httpx2.Client:
    return http_client(key or _NO_KEY, url)
