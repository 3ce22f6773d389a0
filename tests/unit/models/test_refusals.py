"""Which of an endpoint's errors say that a prompt is too long, in the words that servers and services have for it."""

from __future__ import annotations

import json

import pytest

from rollout_tasks.models.refusals import ModelEndpoint, read_refusal

TOO_LONG = {
    "Anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
    "Anthropic with its reply": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
    "Bedrock": "Input is too long for requested model.",
    "Gemini": "The input token count (1048600) exceeds the maximum number of tokens allowed (1048576).",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "llama.cpp with numbers": "request (9001 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "SGLang and Together": "The input (131123 tokens) is longer than the model's context length (131072 tokens).",
    "vLLM": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 131123 tokens.",
}


def overflows(status: int, message: str) -> bool:
    body = json.dumps({"error": {"message": message}})
    return read_refusal(ModelEndpoint("m", "http://h/v1"), status, "Bad Request", {}, body, "").context_overflow


@pytest.mark.parametrize("message", TOO_LONG.values(), ids=TOO_LONG.keys())
def test_a_prompt_that_is_too_long_is_known_by_what_is_said(message: str) -> None:
    assert overflows(400, message)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "max_tokens: 99999 > 64000, which is the maximum allowed number of output tokens"),
        (400, "The name of the tool is longer than 64 characters."),
        (404, "This model's maximum context length is 4096 tokens."),
    ],
)
def test_other_errors_say_nothing_of_the_prompt(status: int, message: str) -> None:
    assert not overflows(status, message)
