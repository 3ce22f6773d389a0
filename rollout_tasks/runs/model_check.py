"""Checks a run's model before anything is enqueued: where its endpoint is, and whether it serves the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmark.backoff import passing
from benchmark.items import Item
from benchmark.metrics import JUDGE_METRIC
from benchmark.money import dollars
from rollout_tasks.config import RunConfig
from rollout_tasks.config_fields import check_url
from rollout_tasks.errors import UserError
from rollout_tasks.model_config import ModelConfig, ModelRole
from rollout_tasks.models.apis import APIS, OPENAI_URL
from rollout_tasks.models.prices import with_list_prices
from rollout_tasks.models.role_keys import VARIABLE, key_of_role
from rollout_tasks.runs.agent_profile import needed_context
from rollout_tasks.runs.asked_endpoint import AskedEndpoint, own_key
from rollout_tasks.settings import settings


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
    """Checks that the model's endpoint serves the model, and so for each further model.

    Returns:
        The configuration with the endpoints filled in, marked as scripted if and only if the run's own is the scripted model.

    Raises:
        UserError: An endpoint cannot be reached, refuses the key, is not OpenAI-compatible or lacks the model, or says that
            the model's context is shorter than its profile needs.
    """
    return _with_roles(_with_model(config))


def _with_model(config: RunConfig) -> RunConfig:
    pool = config.model.pool
    if pool is not None and config.metric == JUDGE_METRIC:
        _check_judge(config)
    address = _replica_of(config.model) if pool is not None else model_address(config)
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
    endpoint = AskedEndpoint(address, own_key(), config.model.api)
    served = endpoint.served()
    if served is None:
        _check_answers(endpoint, config.model)
        return config
    try:
        _check_context(served, config.model, address, config.profile)
    except UserError as error:
        raise UserError(f"--agent: {error}") from error
    if any(model.get("owned_by") == "scripted" for model in served):
        if config.profile is not None:
            raise UserError(_endpoint_wanted(config))
        return config.model_copy(update={"model": config.model.model_copy(update={"scripted": True})})
    names = [str(model.get("id")) for model in served]
    wanted = {"--model": config.model.name}
    if config.metric == JUDGE_METRIC and config.judge_model and pool is None:  # a pool's run has its judge elsewhere
        wanted["--judge-model"] = config.judge_model
    for option, name in wanted.items():
        if names and name not in names and not (option == "--model" and _is_an_alias(endpoint, config.model)):
            raise UserError(f"{option}: {address} does not serve {name!r}; it serves {endpoint.listed(names)}")
    return config


def _with_roles(config: RunConfig) -> RunConfig:
    """Returns a configuration whose further models have list prices, if theirs are known; each model is checked.

    One that names no endpoint has the run's own, also when that is changed by a resume.

    Raises:
        UserError: One of their endpoints is wrong, as in `check_model`; names the model.
    """
    roles = []
    for role in config.model_roles:
        try:
            _check_role(role, config)
        except UserError as error:
            raise UserError(f"--model-role {role.role}: {error}") from error
        priced = with_list_prices(config.role_model(role))
        prices = {name: getattr(priced, name) for name in ("prompt_price", "completion_price")}
        roles.append(role.model_copy(update={"model": role.model.model_copy(update=prices)}))
    return config.model_copy(update={"model_roles": tuple(roles)})


def _check_role(role: ModelRole, config: RunConfig) -> None:
    model = config.role_model(role)
    address = _replica_of(model, "model-pool", "base-url") if model.pool is not None else model.base_url
    if address is None:
        raise UserError("name its endpoint, as in base-url=http://127.0.0.1:8000/v1")
    key = key_of_role(role, config)
    if key is None:
        endpoint = AskedEndpoint(address, own_key(), model.api)
    else:
        hint = f"check {VARIABLE}" if key else f'none was sent: put it into {VARIABLE}, as in "{role.role}:KEY"'
        endpoint = AskedEndpoint(address, key, model.api, key_hint=hint)
    served = endpoint.served()
    if served is None:
        _check_answers(endpoint, model)
        return
    _check_context(served, model, address, role.profile)
    names = [str(one.get("id")) for one in served]
    if names and model.name not in names and not _is_an_alias(endpoint, model):
        raise UserError(f"{address} does not serve {model.name!r}; it serves {endpoint.listed(names)}")


def _check_answers(endpoint: AskedEndpoint, model: ModelConfig) -> None:
    """Checks that an endpoint which does not say what it serves answers a call."""
    status = endpoint.completion_status(model)
    if status >= 400:
        wrong_address = "" if passing(status) else ": does the address end in /v1?"
        raise UserError(
            f"the model endpoint {endpoint.address} answers HTTP 404 at /models and HTTP {status} at"
            f" {APIS[model.api].path}{wrong_address}"
        )


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
    endpoint = AskedEndpoint(address, own_key())
    served = endpoint.served()
    if served is None:  # it does not say what it serves
        return
    name = config.judge_model or config.model.name
    names = [str(model.get("id")) for model in served]
    if names and name not in names:
        raise UserError(f"--judge-model: {address} does not serve {name!r}; it serves {endpoint.listed(names)}")


def check_no_pool(config: RunConfig) -> None:
    """Checks that a run on this machine alone has no model pool: its Redis is its own, and pools are in that of the workers.

    Raises:
        UserError: It has one.
    """
    given = {"--model-pool": config.model} | {f"--model-role {role.role}": role.model for role in config.model_roles}
    for option, model in given.items():
        if model.pool is not None:
            raise UserError(
                f"{option}: a run on this machine alone does not know the pools of your workers' Redis:"
                " send it to the workers (rollouts submit), or name an endpoint (base-url)"
            )


def _replica_of(model: ModelConfig, pool_option: str = "--model-pool", url_option: str = "--base-url") -> str:
    """Returns the address of a replica of a model pool, for the checks before a run.

    Args:
        model: A model with a pool.
        pool_option: What the option for the pool is called where this model is given.
        url_option: The same for its endpoint.

    Raises:
        UserError: An endpoint is named, too, or the pool has no replica that takes calls.
    """
    from rollout_tasks.models.pool.replicas import Replicas  # here, as few runs have a pool
    from rollout_tasks.redis_client import checked_client

    pool = model.pool or ""
    if model.base_url is not None:
        raise UserError(f"{pool_option}, {url_option}: name one of them")
    replicas = Replicas(checked_client(), pool)
    ready = next(iter(replicas.ready()), None)
    if ready is None:
        there = len(replicas.all())
        some = "it has no replica"
        if there:
            some = "its one replica takes no calls" if there == 1 else f"none of its {there} replicas takes calls"
        raise UserError(f"{pool_option} {pool}: {some}: start some, as with rollouts model attach {pool} URL")
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


def _is_an_alias(endpoint: AskedEndpoint, model: ModelConfig) -> bool:
    """Whether a model answers that is not listed: Anthropic lists a page of models, and none of their aliases."""
    if model.api != "messages":
        return False
    status = endpoint.completion_status(model)
    return status < 400 or passing(status)


def _check_context(served: Sequence[Mapping[str, Any]], model: ModelConfig, address: str, profile: Any) -> None:
    """Compares the context that a profile needs with the model's, where the endpoint tells it as vLLM does."""
    needed = needed_context(profile)
    most = next((one.get("max_model_len") for one in served if one.get("id") == model.name), None)
    if needed is not None and type(most) is int and most < needed:
        raise UserError(
            f"the profile {profile.get('name')} needs a context of {needed} tokens, and {address} serves"
            f" {model.name!r} with {most} (max_model_len): serve it with more, or write a profile that needs less"
        )


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
    for role in config.model_roles:
        if (role.model.prompt_price is None) != (role.model.completion_price is None):
            raise UserError(f"--model-role {role.role}: prompt-price, completion-price: only one of them is given")
    if config.max_cost is None:
        return
    if not needs_model:
        raise UserError("--max-cost: this run asks no model")
    if config.model.prompt_price is None:
        raise UserError(
            f"--max-cost: what {config.model.answerer!r} costs is not known: give --prompt-price and --completion-price"
        )
    for role in config.model_roles:
        if role.model.prompt_price is None:
            raise UserError(
                f"--max-cost: what {role.model.name!r} costs is not known: add"
                f" ,prompt-price=...,completion-price=... to --model-role {role.role}=..."
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
    if config.model_roles:
        raise UserError(
            f"--agent {config.agent}: the scripted model plays no run with several models: name an endpoint, --base-url"
            " (or OPENAI_BASE_URL)"
        )
    from rollout_tasks.models.scripted.scripts import uncovered  # here, because few runs are scripted

    if missing := uncovered(items):
        raise UserError(
            f"no model is configured, and the scripted model has no script for {len(missing)} of {len(items)} items"
            f" (the first is {missing[0]!r}): set OPENAI_API_KEY, or OPENAI_BASE_URL (--base-url)"
        )
