"""What is looked at before anything is enqueued: 1,428 rollouts failing one after another help nobody."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import httpx
import redis

from benchmark.items import Item
from benchmark.metrics import metric
from rollout_tasks import registry
from rollout_tasks.attempt import environment_name
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.settings import settings
from vm_pool.pool import VMPool
from vm_pool.states import VMState

_TRIES = 3
_ANSWER_SECONDS = 10.0
OPENAI_BASE_URL = "https://api.openai.com/v1"


def check_names(config: RunConfig, items: Iterable[Item]) -> set[str]:
    """Checks every name in the configuration against what exists here.

    Returns:
        The environments that the items run in.

    Raises:
        UserError: Unknown environment, agent or metric, or an answer is missing that the metric needs.
    """
    metric(config.metric)
    names = {environment_name(item, config) for item in items}
    for name in sorted(names):
        agent = config.agent or registry.environment(name).default_agent
        registry.agent(agent)
    return names


def needs_model(config: RunConfig, environments: Iterable[str]) -> bool:
    """Whether any rollout of the run, or its metric, asks a model."""
    agents = {config.agent or registry.environment(name).default_agent for name in environments}
    return config.metric == "llm_judgement" or any(registry.agent(agent).needs_model for agent in agents)


def needs_vm(config: RunConfig, items: Iterable[Item]) -> bool:
    """Whether any rollout of the run needs a VM."""
    return any(registry.environment(environment_name(item, config)).needs_vm_for(config, item) for item in items)


def model_address(config: RunConfig) -> str | None:
    """The endpoint that rollouts will ask; None when neither a key nor an address is configured."""
    configured = config.model.base_url or settings().openai_base_url
    if configured:
        return configured.rstrip("/")
    return OPENAI_BASE_URL if settings().openai_api_key else None


def check_model(config: RunConfig) -> RunConfig:
    """Asks the model's endpoint what it serves.

    Returns:
        The configuration with the endpoint filled in, and marked when it is the scripted model.

    Raises:
        UserError: The endpoint cannot be reached, refuses the key, is no such endpoint or does not serve the model.
    """
    address = model_address(config)
    if address is None:
        raise UserError(
            "no model is configured: set OPENAI_API_KEY, or OPENAI_BASE_URL (--base-url) to an OpenAI-compatible endpoint,"
            " or run --embedded for the scripted model"
        )
    config = config.model_copy(update={"model": config.model.model_copy(update={"base_url": address})})
    answer = _ask(address)
    if answer.status_code == 404:
        return _try_completion(config, address)
    served = _served_models(answer, address)
    if any(model.get("owned_by") == "scripted" for model in served):
        return config.model_copy(update={"model": config.model.model_copy(update={"scripted": True})})
    names = [str(model.get("id")) for model in served]
    for wanted in {config.model.name, config.judge_model or config.model.name}:
        if names and wanted not in names:
            shown = ", ".join(sorted(names)[:8]) + (", ..." if len(names) > 8 else "")
            raise UserError(f"--model: {address} does not serve {wanted!r}; it serves {shown}")
    return config


def _ask(address: str) -> httpx.Response:
    """GET /models, three tries at what may pass."""
    problem = ""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(2.0 ** (attempt - 1))
        try:
            answer = httpx.get(f"{address}/models", headers=_login(), timeout=_ANSWER_SECONDS)
        except httpx.TimeoutException:
            problem = f"gave no answer within {_ANSWER_SECONDS:g} s"
            continue
        except httpx.HTTPError as error:
            problem = f"cannot be reached: {error}"
            continue
        if answer.status_code in {401, 403}:
            raise UserError(
                f"the model endpoint {address} refuses the key (HTTP {answer.status_code}): check OPENAI_API_KEY"
            )
        if answer.status_code == 429 or answer.status_code >= 500:
            problem = f"answers HTTP {answer.status_code}"
            continue
        return answer
    raise UserError(f"the model endpoint {address} {problem} ({_TRIES} tries)")


def _served_models(answer: httpx.Response, address: str) -> list[dict[str, Any]]:
    if answer.status_code >= 400:
        raise UserError(f"the model endpoint {address} answers HTTP {answer.status_code} at /models")
    try:
        data = answer.json()["data"]
        return [dict(model) for model in data]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{address} is no OpenAI-compatible endpoint: /models answers no list of models") from error


def _try_completion(config: RunConfig, address: str) -> RunConfig:
    """For endpoints without /models: one token settles it."""
    body = {"model": config.model.name, "messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 16}
    try:
        answer = httpx.post(f"{address}/chat/completions", json=body, headers=_login(), timeout=config.model.timeout)
    except httpx.HTTPError as error:
        raise UserError(f"the model endpoint {address} cannot be reached: {error}") from error
    if answer.status_code >= 400:
        raise UserError(
            f"the model endpoint {address} answers HTTP 404 at /models and HTTP {answer.status_code} at /chat/completions:"
            " does the address end in /v1?"
        )
    return config


def _login() -> dict[str, str]:
    key = settings().openai_api_key
    return {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}


def check_pool(config: RunConfig, client: redis.Redis) -> None:
    """Checks that somebody has VMs to lend.

    Raises:
        UserError: The pool has none.
    """
    if not config.vm.use_pool:
        return
    if not any(vm.state != VMState.STOPPED for vm in VMPool(client, config.vm.pool).status().vms):
        raise UserError(
            f"--pool: the pool {config.vm.pool!r} has no VMs; start some with"
            f" `celery -A rollout_tasks worker --num-vms 3 --provider {config.vm.provider_name}` or `scripts/vm_host.py`"
        )
