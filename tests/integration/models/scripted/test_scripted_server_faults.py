"""Each fault as the real OpenAI client meets it, and how the conversation goes on after it."""

import json

import httpx
import openai
import pytest

from tests.integration.models.scripted.clients import Conversation

ITEM = "lock-codes"


@pytest.fixture
def conversation(examples):
    return Conversation(examples.url, ITEM)


@pytest.mark.parametrize(
    ("kind", "error", "code"),
    [
        ("rate_limit", openai.RateLimitError, "rate_limit_exceeded"),
        ("server_error", openai.InternalServerError, "server_error"),
        ("unavailable", openai.InternalServerError, "unavailable"),
        ("unauthorized", openai.AuthenticationError, "invalid_api_key"),
        ("not_found", openai.NotFoundError, "model_not_found"),
        ("context_overflow", openai.BadRequestError, "context_length_exceeded"),
    ],
)
def test_a_refusal_is_an_error_of_its_status_and_the_next_try_is_answered(conversation, set_faults, kind, error, code):
    set_faults({"kind": kind, "item": ITEM, "times": 1})

    with pytest.raises(error) as caught:
        conversation.ask()

    assert caught.value.code == code
    assert conversation.turn().tool_calls


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"kind": "rate_limit"}, (429, "1")),
        ({"kind": "rate_limit", "retry_after": 0.25}, (429, "0.25")),
        ({"kind": "unavailable"}, (503, None)),
        ({"kind": "unavailable", "retry_after": 300}, (503, "300")),
    ],
)
def test_retry_after_says_what_the_rule_says(conversation, set_faults, rule, expected):
    set_faults(rule)

    with pytest.raises(openai.APIStatusError) as caught:
        conversation.ask()

    response = caught.value.response
    assert (response.status_code, response.headers.get("Retry-After")) == expected


def test_a_hang_outlasts_the_client(examples, set_faults):
    set_faults({"kind": "hang"})

    with pytest.raises(openai.APITimeoutError):
        Conversation(examples.url, ITEM, timeout=0.2).ask()


def test_a_hang_with_an_end_is_a_timeout_of_the_server(conversation, set_faults):
    set_faults({"kind": "hang", "seconds": 0.01})

    with pytest.raises(openai.InternalServerError) as caught:
        conversation.ask()

    assert caught.value.status_code == 504


def test_a_slow_reply_is_good_but_late(examples, set_faults):
    set_faults({"kind": "slow", "seconds": 20, "times": 1})
    with pytest.raises(openai.APITimeoutError):
        Conversation(examples.url, ITEM, timeout=0.2).ask()

    set_faults({"kind": "slow", "seconds": 0.5})
    assert Conversation(examples.url, ITEM).turn().tool_calls


def test_a_connection_may_end_in_the_middle_of_a_reply(conversation, set_faults):
    set_faults({"kind": "disconnect", "times": 1})

    with pytest.raises(openai.APIConnectionError):
        conversation.ask()
    assert conversation.turn().tool_calls


def test_bad_json_is_a_good_status_with_half_a_document(conversation, set_faults):
    set_faults({"kind": "bad_json"})

    with pytest.raises(json.JSONDecodeError):
        conversation.ask()


def test_choices_may_be_empty_or_missing(conversation, set_faults):
    set_faults({"kind": "empty_choices", "times": 1}, {"kind": "missing_choices", "times": 1})

    empty, missing = conversation.ask(), conversation.ask()

    assert empty.choices == []
    assert missing.choices is None


def test_made_up_calls_are_answered_and_the_script_goes_on_where_it_was(conversation, set_faults):
    set_faults({"kind": "malformed_arguments", "times": 1}, {"kind": "unknown_tool", "times": 1})

    malformed, unknown, good, last = [conversation.turn() for _ in range(4)]

    with pytest.raises(json.JSONDecodeError):
        json.loads(malformed.tool_calls[0].function.arguments)
    assert unknown.tool_calls[0].function.name == "no_such_tool"
    assert json.loads(good.tool_calls[0].function.arguments) == {"expressions": ["9*9*8*7"]}
    assert last.content == "There are 4536 possible codes."


def test_faults_keep_to_their_item_turn_and_attempt(examples, set_faults):
    set_faults({"kind": "server_error", "item": ITEM, "turn": 1, "attempt": 1})

    assert Conversation(examples.url, "handshakes").turn().tool_calls
    second_attempt = Conversation(examples.url, ITEM, attempt=2)
    assert [bool(second_attempt.turn().tool_calls) for _ in range(2)] == [True, False]
    first_attempt = Conversation(examples.url, ITEM, attempt=1)
    first_attempt.turn()
    with pytest.raises(openai.InternalServerError):
        first_attempt.turn()


@pytest.mark.parametrize(
    ("body", "said"),
    [(b"{", "must be a JSON list of rules"), (b'[{"kind": "boom"}]', "faults: 0.kind: must be")],
)
def test_wrong_rules_are_refused_and_change_nothing(examples, conversation, set_faults, body, said):
    set_faults({"kind": "not_found"})

    reply = httpx.post(examples.url.removesuffix("/v1") + "/scripted/faults", content=body)

    assert reply.status_code == 400
    assert said in reply.json()["error"]["message"]
    with pytest.raises(openai.NotFoundError):
        conversation.ask()
