"""Checks a run's model before anything is enqueued: where its endpoint is, and whether it serves the model."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmark.backoff import passing, pause
from benchmark.deadline import Deadline, TooSlowError, with_deadlines
from benchmark.http_client import without_key
from benchmark.items import Item
from benchmark.metrics import JUDGE_METRIC
from benchmark.money import dollars
from benchmark.response_body import UnreadableBodyError, read_text
from rollout_tasks.config import RunConfig
from rollout_tasks.config_fields import check_url
from rollout_tasks.errors import UserError
from rollout_tasks.models.apis import APIS, OPENAI_URL
from rollout_tasks.models.prices import with_list_prices
from rollout_tasks.runs.agent_profile import needed_context
from rollout_tasks.settings import checked_key, settings

LARGEST_ANSWER = 16 << 20
"""Most bytes read of an answer; the longest lists of models have one or two million."""
_TRIES = 3
_PAUSE_SECONDS = 1.0
_ANSWER_SECONDS = 10.0
_REFUSED_KEY = frozenset({401, 403})
_NAMES_SHOWN = 8
_NAME_CHARACTERS = 100


class _KeyRefused(UserError):
    """The endpoint refuses the key."""


class _Answer(NamedTuple):
    status: int
    text: str


def model_address(config: RunConfig) -> str | None:
    """Returns the endpoint that rollouts will use; None when neither a key nor an address is configured.

    Raises:
        UserError: OPENAI_BASE_URL is not an address, or contains a secret, which run.json would then store.
    """
    if config.model.base_url:
        return config.model.base_url
    if (configured := settings().openai_base_url) is not None:
        try:
            return check_url(configured)
        except ValueError as error:
            raise UserError(f"OPENAI_BASE_URL: {error}") from error
    return OPENAI_URL if settings().openai_api_key else None


def check_model(config: RunConfig) -> RunConfig:
    """Checks that the model's endpoint serves the model.

    Returns:
        The configuration with the endpoint filled in, marked as scripted if and only if that is the scripted model.

    Raises:
        UserError: The endpoint cannot be reached, refuses the key, is not OpenAI-compatible or lacks the model, or says that
            the model's context is shorter than the agent's profile needs.
    """
    pool = config.model.pool
    if pool is not None and config.metric == JUDGE_METRIC:
        _check_judge(config)
    address = _replica_of(config, pool) if pool is not None else model_address(config)
    if config.profile is not None and (address is None or (address == OPENAI_URL and config.model.api == "messages")):
        raise UserError(_endpoint_wanted(config))
    if address is None:
        raise UserError(
            "no model is configured: set OPENAI_API_KEY, or OPENAI_BASE_URL (--base-url) to an OpenAI-compatible endpoint,"
            " or use rollouts run, or rollouts resume with --embedded, which start the scripted model"
        )
    filled = {} if pool is not None else {"base_url": address}
    model = with_list_prices(config.model.model_copy(update={**filled, "scripted": False}))
    config = config.model_copy(update={"model": model})
    answer = _ask(address, config.model.api)
    path = APIS[config.model.api].path
    if answer.status == 404:
        status = _completion_status(config, address)
        if status >= 400:
            wrong_address = "" if passing(status) else ": does the address end in /v1?"
            raise UserError(
                f"the model endpoint {address} answers HTTP 404 at /models and HTTP {status} at {path}{wrong_address}"
            )
        return config
    served = _models_in(answer, address)
    _check_context(config, served, address)
    if any(model.get("owned_by") == "scripted" for model in served):
        if config.profile is not None:
            raise UserError(_endpoint_wanted(config))
        return config.model_copy(update={"model": config.model.model_copy(update={"scripted": True})})
    names = [str(model.get("id")) for model in served]
    wanted = {"--model": config.model.name}
    if config.metric == JUDGE_METRIC and config.judge_model and pool is None:  # a pool's run has its judge elsewhere
        wanted["--judge-model"] = config.judge_model
    for option, name in wanted.items():
        if names and name not in names and not (option == "--model" and _is_an_alias(config, address)):
            raise UserError(f"{option}: {address} does not serve {name!r}; it serves {_listed(names)}")
    return config


def _check_judge(config: RunConfig) -> None:
    """Checks that the judge of a model pool's run has an endpoint of its own, and is served there.

    Raises:
        UserError: It has none, or is not.
    """
    configured = settings().openai_base_url
    if configured is None:
        raise UserError("--metric: a judge is not asked in a model pool: name its endpoint in OPENAI_BASE_URL")
    try:
        address = check_url(configured)
    except ValueError as error:
        raise UserError(f"OPENAI_BASE_URL: {error}") from error
    answer = _ask(address)
    if answer.status == 404:  # it does not say what it serves
        return
    name = config.judge_model or config.model.name
    names = [str(model.get("id")) for model in _models_in(answer, address)]
    if names and name not in names:
        raise UserError(f"--judge-model: {address} does not serve {name!r}; it serves {_listed(names)}")


def check_no_pool(config: RunConfig) -> None:
    """Checks that a run on this machine alone has no model pool: its Redis is its own, and pools are in that of the workers.

    Raises:
        UserError: It has one.
    """
    if config.model.pool is not None:
        raise UserError(
            "--model-pool: a run on this machine alone does not know the pools of your workers' Redis:"
            " send it to the workers (rollouts submit), or name an endpoint (--base-url)"
        )


def _replica_of(config: RunConfig, pool: str) -> str:
    """Returns the address of a replica of a model pool, for the checks before a run.

    Raises:
        UserError: An endpoint is named, too, or the pool has no replica that takes calls.
    """
    from rollout_tasks.models.pool.replicas import Replicas  # here, as few runs have a pool
    from rollout_tasks.redis_client import checked_client

    if config.model.base_url is not None:
        raise UserError("--model-pool, --base-url: name one of them")
    replicas = Replicas(checked_client(), pool)
    ready = next(iter(replicas.ready()), None)
    if ready is None:
        there = len(replicas.all())
        some = "it has no replica"
        if there:
            some = "its one replica takes no calls" if there == 1 else f"none of its {there} replicas takes calls"
        raise UserError(f"--model-pool {pool}: {some}: start some, as with rollouts model attach {pool} URL")
    return ready.base_url


def _endpoint_wanted(config: RunConfig) -> str:
    """Returns the sentence about a run whose agent has a profile, and no endpoint that speaks its protocol."""
    name = (config.profile or {}).get("name")
    if config.model.api == "messages":
        return (
            f"--agent {name} calls its model through Anthropic's Messages API: name its endpoint, as in"
            " --base-url https://api.anthropic.com/v1 (or in OPENAI_BASE_URL); OPENAI_API_KEY is then Anthropic's key"
        )
    return f"--agent {name}: the scripted model cannot speak its protocol: name an endpoint, --base-url (or OPENAI_BASE_URL)"


def _is_an_alias(config: RunConfig, address: str) -> bool:
    """Whether a model answers that is not listed: Anthropic lists a page of models, and none of their aliases."""
    if config.model.api != "messages":
        return False
    status = _completion_status(config, address)
    return status < 400 or passing(status)


def _check_context(config: RunConfig, served: Sequence[Mapping[str, Any]], address: str) -> None:
    """Compares the context that an agent's profile needs with the model's, where the endpoint tells it as vLLM does."""
    needed = needed_context(config)
    most = next((model.get("max_model_len") for model in served if model.get("id") == config.model.name), None)
    if needed is not None and type(most) is int and most < needed:
        name = (config.profile or {}).get("name")
        raise UserError(
            f"--agent: the profile {name} needs a context of {needed} tokens, and {address} serves"
            f" {config.model.name!r} with {most} (max_model_len): serve it with more, or write a profile that needs less"
        )


def served_models(address: str) -> str:
    """Returns what an endpoint serves, as the rest of a sentence.

    Raises:
        UserError: It cannot be reached, refuses the key, or is not OpenAI-compatible.
    """
    try:
        answer = _ask(address)
    except _KeyRefused:  # by Chat Completions and Responses; Anthropic's API has a login of its own
        answer = _ask(address, "messages")
    if answer.status == 404:
        return "answers; it does not say which models it serves"
    names = [str(model.get("id")) for model in _models_in(answer, address)]
    return f"serves {_listed(names)}" if names else "answers; it serves no model"


def _listed(names: Sequence[str]) -> str:
    some = ", ".join(_without_key(name)[:_NAME_CHARACTERS] for name in sorted(names)[:_NAMES_SHOWN])
    return some + (", ..." if len(names) > _NAMES_SHOWN else "")


def check_cost(config: RunConfig, *, needs_model: bool, spent: float) -> None:
    """Checks a run's prices, and that its cost limit can be kept.

    Args:
        config: The run's configuration.
        needs_model: Whether it asks a model.
        spent: Dollars that a resumed run has spent so far.

    Raises:
        UserError: Only one of two prices is given, or there is a limit and no model, no known price, or nothing left of it.
    """
    if (config.model.prompt_price is None) != (config.model.completion_price is None):
        raise UserError("--prompt-price, --completion-price: only one of them is given")
    if config.max_cost is None:
        return
    if not needs_model:
        raise UserError("--max-cost: this run asks no model")
    if config.model.prompt_price is None:
        raise UserError(
            f"--max-cost: what {config.model.answerer!r} costs is not known: give --prompt-price and --completion-price"
        )
    if spent >= config.max_cost:
        raise UserError(
            f"--max-cost: the run has cost {dollars(spent)} already, of {dollars(config.max_cost)}: raise it"
        )


def check_scripts(config: RunConfig, items: Sequence[Item]) -> None:
    """Checks that the scripted model can replace a model that is not configured.

    Raises:
        UserError: The agent has a profile, whose protocol the scripted model cannot speak, or an item has no script.
    """
    if config.profile is not None:
        raise UserError(_endpoint_wanted(config))
    from rollout_tasks.models.scripted.scripts import uncovered  # here, because few runs are scripted

    if missing := uncovered(items):
        raise UserError(
            f"no model is configured, and the scripted model has no script for {len(missing)} of {len(items)} items"
            f" (the first is {missing[0]!r}): set OPENAI_API_KEY, or OPENAI_BASE_URL (--base-url)"
        )


def _ask(address: str, api: str = "chat") -> _Answer:
    """Sends GET /models; tries again where that may help soon, but not after a timeout."""
    import httpx2  # the openai package's client: slow to import, and many runs ask no model

    problem = ""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(pause(attempt, first=_PAUSE_SECONDS, longest=_PAUSE_SECONDS * 2))
        try:
            answer = _send("GET", address, "/models", _ANSWER_SECONDS, api=api)
        except httpx2.HTTPError as error:
            problem = f"cannot be reached: {_without_key(error)}"
            continue
        if answer.status in _REFUSED_KEY:
            raise _KeyRefused(_key_refused(address, answer.status))
        if passing(answer.status):
            problem = f"answers HTTP {answer.status}"
            continue
        return answer
    raise UserError(f"the model endpoint {address} {problem} ({_TRIES} tries)")


def _send(
    method: str, address: str, path: str, seconds: float, body: Mapping[str, Any] | None = None, *, api: str = "chat"
) -> _Answer:
    """Sends one request; reads its answer within limits.

    Raises:
        UserError: The answer is too late, too long, or in an encoding that was not asked for; or a proxy has no address.
        httpx2.HTTPError: The endpoint cannot be reached, or the connection breaks.
    """
    import httpx2  # here, as in _ask

    headers = {**_login(api), "Accept-Encoding": "gzip"}
    try:
        with (
            with_deadlines(httpx2.Client(headers=headers, timeout=Deadline(seconds))) as client,
            client.stream(method, f"{address}{path}", json=body) as response,
        ):
            return _Answer(response.status_code, read_text(response, LARGEST_ANSWER))
    except (httpx2.TimeoutException, TooSlowError) as error:
        raise UserError(f"the model endpoint {address} gave no answer within {seconds:g} s") from error
    except UnreadableBodyError as error:
        raise UserError(f"the model endpoint {address} answers {path} {error}") from error
    except OSError as error:
        what = f"{error.filename or 'a file of certificates'}: {error.strerror or error}"
        raise UserError(f"the model endpoint {address} cannot be asked: {what} (see SSL_CERT_FILE)") from error
    except (httpx2.InvalidURL, ValueError, ImportError) as error:  # whose message may contain a password
        raise UserError(
            f"the model endpoint {address} cannot be asked through the proxy that HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names"
        ) from error


def _key_refused(address: str, status: int) -> str:
    return f"the model endpoint {address} refuses the key (HTTP {status}): check OPENAI_API_KEY"


def _models_in(answer: _Answer, address: str) -> list[dict[str, Any]]:
    if answer.status >= 400:
        raise UserError(f"the model endpoint {address} answers HTTP {answer.status} at /models")
    try:
        data = json.loads(answer.text)["data"]
        return [dict(model) for model in data]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{address} is not an OpenAI-compatible endpoint: /models did not return a list of models"
        ) from error


def _completion_status(config: RunConfig, address: str) -> int:
    """Asks for a short reply in the run's API; returns the HTTP status.

    Raises:
        UserError: The endpoint cannot be reached, or refuses the key.
    """
    import httpx2  # here, as in _ask

    api = APIS[config.model.api]
    body = {"model": config.model.name, api.most_tokens: 16, **api.prompt([{"role": "user", "content": "Hi"}])}
    try:
        answer = _send("POST", address, api.path, config.model.timeout, body, api=config.model.api)
    except httpx2.HTTPError as error:
        raise UserError(f"the model endpoint {address} cannot be reached: {_without_key(error)}") from error
    if answer.status in _REFUSED_KEY:
        raise UserError(_key_refused(address, answer.status))
    return answer.status


def _login(api: str) -> dict[str, str]:
    key = _key()
    return {} if key is None else APIS[api].login(key)


def _without_key(said: object) -> str:
    return without_key(str(said), _key() or "")


def _key() -> str | None:
    secret = settings().openai_api_key
    return None if secret is None else checked_key(secret.get_secret_value())
