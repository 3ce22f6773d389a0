"""What an endpoint's engine makes of a client's request: the run's options take precedence."""

from __future__ import annotations

from typing import Any

import pytest

from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.gateway.endpoint_engine import EndpointEngine

PREPARED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "the model": ({}, {"model": "asked"}, {"model": "policy"}),
    "what the run leaves open": ({}, {"temperature": 0.3, "top_k": 4}, {"temperature": 0.3, "top_k": 4}),
    "what the run says": (
        {"temperature": 1.0, "top_p": 0.9, "seed": 7},
        {"temperature": 0.3, "seed": 1},
        {"temperature": 1.0, "top_p": 0.9, "seed": 7},
    ),
    "more fields of the run": (
        {"extra_body": {"logprobs": True, "return_token_ids": True}},
        {"logprobs": False},
        {"logprobs": True, "return_token_ids": True},
    ),
    "one limit of two names": ({"max_completion_tokens": 9}, {"max_tokens": 100}, {"max_completion_tokens": 9}),
    "the client's limit": ({}, {"max_tokens": 100}, {"max_tokens": 100}),
}


@pytest.mark.parametrize(("options", "asked", "expected"), PREPARED.values(), ids=PREPARED.keys())
def test_the_runs_options_take_precedence(
    options: dict[str, Any], asked: dict[str, Any], expected: dict[str, Any]
) -> None:
    engine = EndpointEngine(ModelConfig(name="policy", base_url="http://127.0.0.1:1/v1", **options))

    assert engine.prepared({"messages": [], **asked}) == {"model": "policy", "messages": [], **expected}


def test_a_key_that_cannot_be_sent_is_refused_without_showing_it() -> None:
    with pytest.raises(ValueError, match="contains characters that no key has") as caught:
        EndpointEngine(ModelConfig(base_url="http://127.0.0.1:1/v1"), api_key="sk-a\nb")

    assert "sk-" not in str(caught.value)
