"""What a model's tokens cost: the prices that a run gives, else the provider's list prices (the library genai-prices)."""

from __future__ import annotations

from decimal import Decimal

from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.base import Usage

_MILLION = 1_000_000
_SAMPLE = 1_000
"""Tokens that a list price is computed for: few enough that no higher price for long prompts applies."""


def with_list_prices(model: ModelConfig) -> ModelConfig:
    """Fills in the list prices of a provider's own endpoint, if they are known and the run gives none.

    They are the standard prices: discounts for cached prompts and higher prices for long ones are left out. Another endpoint
    that serves a model of the same name has no known price.
    """
    given = model.prompt_price is not None or model.completion_price is not None
    if given or model.base_url is None or model.scripted:
        return model
    import genai_prices  # here, because a worker needs no list of prices

    usage = genai_prices.Usage(input_tokens=_SAMPLE, output_tokens=_SAMPLE)
    try:
        price = genai_prices.calc_price(usage, model.name, provider_api_url=model.base_url)
    except (LookupError, ValueError):
        return model
    found = {"prompt_price": _per_million(price.input_price), "completion_price": _per_million(price.output_price)}
    return model.model_copy(update=found)


def cost(model: ModelConfig, usage: Usage) -> float | None:
    """Returns the dollars that some calls cost; None when prices are not known, or the endpoint counts no tokens."""
    if model.prompt_price is None or model.completion_price is None:
        return None
    if usage.requests and not usage.total_tokens:
        return None
    return (usage.prompt_tokens * model.prompt_price + usage.completion_tokens * model.completion_price) / _MILLION


def _per_million(price: Decimal) -> float:
    return float(price * _MILLION / _SAMPLE)
