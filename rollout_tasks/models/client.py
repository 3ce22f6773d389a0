"""The client of a model's endpoint, in each API of `APIS`. Whether a call is tried again is decided in `retries`.

It uses the HTTP client of the `openai` package, made on first use, after the fork, and shared by the rollouts of a process.
It does not use that package's own requests: `create` spends milliseconds on converting the whole history for each call and
hides the contents of bad responses, and even `post` takes longer to build a request than to send one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmark.deadline import Deadline, TooSlowError
from benchmark.http_client import BAD_PROXY, UnusableProxy, http_client, without_key, without_real_key
from benchmark.response_body import UnreadableBodyError, read_text
from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.apis import APIS, SAMPLING_FIELDS
from rollout_tasks.models.base import ContextOverflow, Message, Reply, Usage
from rollout_tasks.models.parsing import NotAReplyError
from rollout_tasks.models.refusals import ModelEndpoint, read_refusal
from rollout_tasks.models.retries import KEY_IN_REPLY, FailedTry, decide, no_reply, too_slow, unreachable
from rollout_tasks.models.routes import Route, route_of
from rollout_tasks.per_process import per_process
from rollout_tasks.settings import checked_key, settings

if TYPE_CHECKING:
    import httpx2
    import redis

SESSION_HEADER = "X-Session-Id"
"""Keeps a trajectory on one replica, and tells a scripted model which script to play."""
LARGEST_RESPONSE = 64 << 20
"""Bytes, decompressed; token ids and log-probabilities of 100,000 tokens take a quarter of it."""
LARGEST_CONVERSATION = 250_000_000
"""Characters of all replies of a session, which stay in memory and on disk; a million tokens with token data have 160 million."""
_NO_KEY = "none"
"""Sent if no key is configured: local servers need none, others answer 401."""


@dataclass(frozen=True, slots=True)
class _Connected:
    """A process's client for one API of an endpoint, with the calls' address and common headers.

    Making address and headers for each call would take as long as sending it.
    """

    client: httpx2.Client
    url: httpx2.URL
    headers: list[tuple[bytes, bytes]]


def open_model(
    config: ModelConfig,
    *,
    session_id: str,
    api_key: str | None = None,
    base_url: str | None = None,
    client: redis.Redis | None = None,
) -> ModelClient:
    """Returns a model bound to one session. Does not connect yet.

    Args:
        config: The run's model options.
        session_id: Sent with every request; printable ASCII, as from `session_ids`.
        api_key: The endpoint's key; default: the environment's.
        base_url: The endpoint; default: that of `route_of`.
        client: Of the Redis that has the model's pool; default: that of `route_of`.

    Raises:
        UserError: The key cannot be sent in a header.
    """
    configured = settings()
    if api_key is None and configured.openai_api_key is not None:
        api_key = configured.openai_api_key.get_secret_value()
    key = checked_key(api_key or "") or _NO_KEY
    return ModelClient(config, session_id, key, route_of(config, session_id, base_url, client))


class ModelClient:
    """One session's `Model`. Not thread-safe."""

    def __init__(self, config: ModelConfig, session_id: str, api_key: str, route: Route) -> None:
        self._config = config
        self._api_key = api_key
        self._route = route
        self._base_url = ""
        """Where the current try goes."""
        self._api = APIS[config.api]
        self.session_id = session_id
        self._session = (SESSION_HEADER.encode(), session_id.encode())
        self._received = 0
        self._fixed: dict[str, Any] = {**config.extra_body, "model": config.name}
        for name in SAMPLING_FIELDS:
            if (value := getattr(config, name)) is not None:
                self._fixed[self._api.most_tokens if name == "max_completion_tokens" else name] = value

    def complete(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Reply:
        """Asks for one turn; see `Model`."""
        request = {**self._fixed, **self._api.prompt(messages)}
        if tools:
            request["tools"] = tools
        body = json.dumps(request).encode()
        headers = [(name.encode(), value.encode()) for name, value in self._api.tool_headers(tools).items()]
        started = time.monotonic()
        tries, failed = 0, set[str]()
        while True:
            tries += 1
            outcome = self._routed(body, headers, tries, started, failed)
            if isinstance(outcome, Reply):
                return outcome
            decision = decide(outcome, tries, self._config.max_retries)
            if decision.delay is None:
                raise RolloutFailure(outcome.failure_class, self._without_key(decision.sentence))
            time.sleep(decision.delay)

    def _routed(
        self, body: bytes, headers: list[tuple[bytes, bytes]], tries: int, started: float, failed: set[str]
    ) -> Reply | FailedTry:
        """Makes a try where the route leads; a replica that has failed is added to `failed`."""
        destination = self._route.begin(failed)
        if isinstance(destination, FailedTry):
            return destination
        self._base_url = destination.base_url
        try:
            outcome = self._try(body, headers, tries, started)
        finally:
            served = self._route.end(destination)
        if isinstance(outcome, Reply):
            return replace(outcome, served=served)
        if outcome.elsewhere and destination.replica_id:
            failed.add(destination.replica_id)
            return outcome.at_another() if self._route.another(failed) else outcome
        return outcome

    def _try(self, body: bytes, headers: list[tuple[bytes, bytes]], tries: int, started: float) -> Reply | FailedTry:
        import httpx2  # the openai package's client: slow to import, and submitters call nothing

        try:
            response, text = self._send(body, headers)
            if not response.is_success:
                return self._refused(response, text)
            self._received += len(text)
            if self._received > LARGEST_CONVERSATION:
                much = f"{self._endpoint} has answered with more than {LARGEST_CONVERSATION:,} characters in all"
                return FailedTry(much, FailureClass.MODEL, retried=False, elsewhere=False)
            text = without_real_key(text, self._secret)
            return self._api.parse(text, Usage(requests=tries, seconds=time.monotonic() - started))
        except (httpx2.TimeoutException, TooSlowError):
            return too_slow(self._endpoint, self._config.timeout)
        except httpx2.HTTPError as error:
            return unreachable(self._endpoint, f"{type(error).__name__}: {error}")
        except (
            UnusableProxy,
            httpx2.InvalidURL,
        ):  # the base URL was checked; the error's text may contain a proxy's password
            return unreachable(self._endpoint, BAD_PROXY)
        except NotAReplyError:
            return no_reply(self._endpoint, self._why_no_reply(text))
        except UnreadableBodyError as error:
            return no_reply(self._endpoint, error)

    def _why_no_reply(self, text: str) -> str:
        """Returns what is wrong with a text that is not a reply; what is quoted of it has no part of the key."""
        try:
            self._api.parse(self._without_key(text), Usage())
        except NotAReplyError as error:
            return str(error)
        return KEY_IN_REPLY

    def _send(self, body: bytes, more: list[tuple[bytes, bytes]]) -> tuple[httpx2.Response, str]:
        import httpx2  # here, as in _try

        connected = _connected(self._api_key, self._base_url, self._config.api)
        headers = [*connected.headers, *more, self._session, (b"Content-Length", b"%d" % len(body))]
        stream = httpx2.ByteStream(body)
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), Deadline(self._config.timeout))
        response = connected.client.send(
            httpx2.Request("POST", connected.url, headers=headers, stream=stream, extensions={"timeout": timeout}),
            stream=True,
            follow_redirects=False,
        )
        with closing(response):
            return response, read_text(response, LARGEST_RESPONSE)

    def _refused(self, response: httpx2.Response, text: str) -> FailedTry:
        endpoint = ModelEndpoint(self._config.name, self._base_url)
        refusal = read_refusal(
            endpoint, response.status_code, response.reason_phrase, response.headers, text, self._secret
        )
        if refusal.context_overflow:
            raise ContextOverflow(self._without_key(refusal.failed.sentence))
        return refusal.failed

    @property
    def _endpoint(self) -> str:
        """The endpoint's name in errors, without secrets that a URL may contain."""
        return str(ModelEndpoint(self._config.name, self._base_url))

    @property
    def _secret(self) -> str:
        return "" if self._api_key == _NO_KEY else self._api_key

    def _without_key(self, sentence: str) -> str:
        return without_key(sentence, self._secret)


@per_process
def _connected(api_key: str, base_url: str, api: str) -> _Connected:
    client = http_client(api_key, base_url)
    sample = client.build_request("POST", f"{base_url}{APIS[api].path}")
    del sample.headers["Content-Length"]
    del sample.headers["Authorization"]
    sample.headers.update(APIS[api].login(api_key))
    return _Connected(client, sample.url, sample.headers.raw)
