"""What tokens cost: the prices of a run, else the list prices of a provider's own endpoint."""

from __future__ import annotations

import pytest

from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.base import Usage
from rollout_tasks.models.prices import cost, with_list_prices

OPENAI = "https://api.openai.com/v1"


def test_a_providers_own_endpoint_has_list_prices() -> None:
    found = with_list_prices(ModelConfig(name="gpt-4.1-2025-04-14", base_url=OPENAI))
    assert (found.prompt_price, found.completion_price) == (2.0, 8.0)
    assert cost(found, Usage(1_000_000, 500_000)) == 6.0


@pytest.mark.parametrize(
    "model",
    [
        ModelConfig(name="gpt-4.1-2025-04-14", base_url="http://127.0.0.1:8000/v1"),
        ModelConfig(name="a-model-of-mine", base_url=OPENAI),
        ModelConfig(name="gpt-4.1-2025-04-14", base_url=OPENAI, scripted=True),
        ModelConfig(name="gpt-4.1-2025-04-14"),
    ],
    ids=["another endpoint", "another model", "scripted", "no endpoint"],
)
def test_nothing_else_has(model: ModelConfig) -> None:
    assert with_list_prices(model) == model
    assert cost(model, Usage(10, 10)) is None


def test_half_of_a_price_is_not_completed() -> None:
    half = ModelConfig(name="gpt-4.1-2025-04-14", base_url=OPENAI, completion_price=0.5)
    assert with_list_prices(half) == half


def test_what_is_not_counted_has_no_cost() -> None:
    own = ModelConfig(prompt_price=1.0, completion_price=1.0)
    assert cost(own, Usage(requests=3)) is None
    assert cost(own, Usage()) == 0.0


def test_the_prices_of_a_run_are_kept() -> None:
    own = ModelConfig(name="gpt-4.1-2025-04-14", base_url=OPENAI, prompt_price=0.0, completion_price=0.5)
    assert with_list_prices(own) == own
    assert cost(own, Usage(1_000_000, 2_000_000)) == 1.0
