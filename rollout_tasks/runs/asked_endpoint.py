"""Asks a model's endpoint what it serves, and whether it answers calls, before anything is enqueued."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmark.backoff import passing, pause
from benchmark.deadline import Deadline, TooSlowError, with_deadlines
from benchmark.http_client import without_key
from benchmark.response_body import UnreadableBodyError, read_text
from rollout_tasks.errors import UserError
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.apis import APIS
from rollout_tasks.settings import checked_key, settings

LARGEST_ANSWER = 16 << 20
"""Most bytes read of an answer; the longest lists of models have one or two million."""
_TRIES = 3
_PAUSE_SECONDS = 1.0
_ANSWER_SECONDS = 10.0
_REFUSED_KEY = frozenset({401, 403})
_NAMES_SHOWN = 8
_NAME_CHARACTERS = 100


class KeyRefused(UserError):
    """The endpoint refuses the key."""


class _Answer(NamedTuple):
    status: int
    text: str


def own_key() -> str:
    """Returns the key of a run's own endpoint; empty if none is configured.

    Raises:
        UserError: It cannot be sent in a header.
    """
    secret = settings().openai_api_key
    return "" if secret is None else checked_key(secret.get_secret_value())


@dataclass(frozen=True, slots=True)
class AskedEndpoint:
    """A model's endpoint, as it is asked before a run."""

    address: str
    key: str
    """Empty: none is sent."""
    api: str = "chat"
    """A key of `APIS`."""
    key_hint: str = "check OPENAI_API_KEY"
    """What to do if the key is refused."""

    def served(self) -> list[dict[str, Any]] | None:
        """Returns the models that it says it serves; None if it does not say.

        Raises:
            UserError: It cannot be reached, refuses the key, or is not OpenAI-compatible.
        """
        answer = self._models()
        if answer.status == 404:
            return None
        if answer.status >= 400:
            raise UserError(f"the model endpoint {self.address} answers HTTP {answer.status} at /models")
        try:
            data = json.loads(answer.text)["data"]
            return [dict(model) for model in data]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(
                f"{self.address} is not an OpenAI-compatible endpoint: /models did not return a list of models"
            ) from error

    def completion_status(self, model: ModelConfig) -> int:
        """Asks for a short reply; returns the HTTP status.

        Raises:
            UserError: The endpoint cannot be reached, or refuses the key.
        """
        import httpx2  # here, as in _models

        api = APIS[self.api]
        body = {"model": model.name, api.most_tokens: 16, **api.prompt([{"role": "user", "content": "Hi"}])}
        try:
            answer = self._send("POST", api.path, model.timeout, body)
        except httpx2.HTTPError as error:
            raise UserError(
                f"the model endpoint {self.address} cannot be reached: {self._without_key(error)}"
            ) from error
        if answer.status in _REFUSED_KEY:
            raise KeyRefused(self._key_refused(answer.status))
        return answer.status

    def listed(self, names: Sequence[str]) -> str:
        """Returns some of the names that it sent, for people to read."""
        some = ", ".join(self._without_key(name)[:_NAME_CHARACTERS] for name in sorted(names)[:_NAMES_SHOWN])
        return some + (", ..." if len(names) > _NAMES_SHOWN else "")

    def _models(self) -> _Answer:
        """Sends GET /models; tries again where that may help soon, but not after a timeout."""
        import httpx2  # the openai package's client: slow to import, and many runs ask no model

        problem = ""
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(pause(attempt, first=_PAUSE_SECONDS, longest=_PAUSE_SECONDS * 2))
            try:
                answer = self._send("GET", "/models", _ANSWER_SECONDS)
            except httpx2.HTTPError as error:
                problem = f"cannot be reached: {self._without_key(error)}"
                continue
            if answer.status in _REFUSED_KEY:
                raise KeyRefused(self._key_refused(answer.status))
            if passing(answer.status):
                problem = f"answers HTTP {answer.status}"
                continue
            return answer
        raise UserError(f"the model endpoint {self.address} {problem} ({_TRIES} tries)")

    def _send(self, method: str, path: str, seconds: float, body: Mapping[str, Any] | None = None) -> _Answer:
        """Sends one request; reads its answer within limits.

        Raises:
            UserError: The answer is too late, too long, or in an encoding that was not asked for; or a proxy has no address.
            httpx2.HTTPError: The endpoint cannot be reached, or the connection breaks.
        """
        import httpx2  # here, as in _models

        login = APIS[self.api].login(self.key) if self.key else {}
        headers = {**login, "Accept-Encoding": "gzip"}
        try:
            with (
                with_deadlines(httpx2.Client(headers=headers, timeout=Deadline(seconds))) as client,
                client.stream(method, f"{self.address}{path}", json=body) as response,
            ):
                return _Answer(response.status_code, read_text(response, LARGEST_ANSWER))
        except (httpx2.TimeoutException, TooSlowError) as error:
            raise UserError(f"the model endpoint {self.address} gave no answer within {seconds:g} s") from error
        except UnreadableBodyError as error:
            raise UserError(f"the model endpoint {self.address} answers {path} {error}") from error
        except OSError as error:
            what = f"{error.filename or 'a file of certificates'}: {error.strerror or error}"
            raise UserError(f"the model endpoint {self.address} cannot be asked: {what} (see SSL_CERT_FILE)") from error
        except (httpx2.InvalidURL, ValueError, ImportError) as error:  # whose message may contain a password
            raise UserError(
                f"the model endpoint {self.address} cannot be asked through the proxy that HTTP_PROXY, HTTPS_PROXY or"
                " ALL_PROXY names"
            ) from error

    def _key_refused(self, status: int) -> str:
        return f"the model endpoint {self.address} refuses the key (HTTP {status}): {self.key_hint}"

    def _without_key(self, said: object) -> str:
        return without_key(str(said), self.key)


def served_models(address: str) -> str:
    """Returns what an endpoint serves, as the rest of a sentence.

    Raises:
        UserError: It cannot be reached, refuses the key, or is not OpenAI-compatible.
    """
    endpoint = AskedEndpoint(address, own_key())
    try:
        served = endpoint.served()
    except KeyRefused:  # by Chat Completions and Responses; Anthropic's API has a login of its own
        served = AskedEndpoint(address, own_key(), "messages").served()
    if served is None:
        return "answers; it does not say which models it serves"
    names = [str(model.get("id")) for model in served]
    return f"serves {endpoint.listed(names)}" if names else "answers; it serves no model"
