"""The run's model as an environment asks it: a session of its own, its cost, and what is said when a text is too long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import TextTooLong
from rollout_tasks.execution.environment_model import model_of_environment
from rollout_tasks.models.attempt_models import cost_of, open_models
from tests.unit.agents.chat_endpoint import OVERFLOW, ChatEndpoint, said


@pytest.fixture
def endpoint() -> Iterator[ChatEndpoint]:
    endpoint = ChatEndpoint()
    yield endpoint
    endpoint.close()


def test_its_calls_count_as_the_attempts_and_not_as_turns(
    endpoint: ChatEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    prices = {"prompt_price": 2, "completion_price": 8}
    config = RunConfig.model_validate({"model": {"base_url": endpoint.url, "name": "m", "max_retries": 1, **prices}})
    meter = open_models(config, "run/1/0/1", for_environment=True)
    model = model_of_environment(meter)
    assert model is not None
    endpoint.will(said("<think>so long</think> Ida Marsh. "), said("a turn"), OVERFLOW)

    assert model.answer("Sum it up.", "a page") == "Ida Marsh."
    meter.complete([{"role": "user", "content": "?"}], ())
    with pytest.raises(TextTooLong):
        model.answer("Sum it up.", "a longer page")

    assert endpoint.bodies[0]["messages"] == [
        {"role": "system", "content": "Sum it up."},
        {"role": "user", "content": "a page"},
    ]
    assert "tools" not in endpoint.bodies[0]
    assert (meter.turns, meter.total.total_tokens) == (1, 30)
    assert cost_of(config, meter) == pytest.approx(2 * (10 * 2 + 5 * 8) / 1e6)


def test_an_environment_that_asks_none_gets_none() -> None:
    assert model_of_environment(open_models(RunConfig(), "run/1/0/1")) is None
