"""Which rollout and turn a request belongs to."""

import pytest

from benchmark.items import Item
from benchmark.judge import judge_messages
from rollout_tasks.models.scripted.sessions import SessionId, Sessions, turn_of

SESSIONS = Sessions(
    [Item("short", "How many?"), Item("long", "Of ten, how many? How many? Say!"), Item("ü/1#2", "Why?")]
)
ASKED = [{"role": "user", "content": "Why?"}]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("run-1/short/0/1", SessionId("rollout", "short", 0, 1)),
        ("run/%C3%BC%2F1%232/12/3", SessionId("rollout", "ü/1#2", 12, 3)),
        ("judge/%C3%BC%2F1%232", SessionId("judge", "ü/1#2")),
    ],
)
def test_the_header_names_the_rollout(header, expected):
    assert SESSIONS.identify(header, ASKED) == expected


@pytest.mark.parametrize(
    "header", [None, "", "something-else", "a/b/c", "run/short/x/1", f"run/short/{'9' * 5000}/1", "run/short/0"]
)
def test_without_a_telling_header_the_question_does(header):
    assert SESSIONS.identify(header, ASKED) == SessionId("rollout", "ü/1#2")


@pytest.mark.parametrize(
    ("content", "item_id"),
    [
        ("How many?", "short"),
        ("Task: How many?\nScreen: empty", "short"),
        ("Of ten, how many? How many? Say!\n\nA screenshot follows.", "long"),
        ([{"type": "text", "text": "Why?"}, {"type": "image_url", "image_url": {"url": "data:"}}], "ü/1#2"),
        ("When?", None),
    ],
)
def test_the_question_is_found_within_the_first_user_message(content, item_id):
    messages = [{"role": "system", "content": "How many?"}, {"role": "user", "content": content}]

    assert SESSIONS.identify(None, messages).item_id == item_id


def test_a_judges_question_is_a_judges_whatever_its_header():
    messages = judge_messages("Why?", "so", "so")

    assert SESSIONS.identify("judge/short", messages) == SessionId("judge", "short")
    assert SESSIONS.identify(None, messages) == SessionId("judge", None)


def test_turns_are_the_assistants_messages_without_those_that_a_fault_made_up():
    def assistant(call_id):
        return {"role": "assistant", "tool_calls": [{"id": call_id}]}

    messages = [*ASKED, assistant("call_0_0"), {"role": "tool"}, assistant("call_fault_1"), {"role": "tool"}]

    assert turn_of(ASKED) == 0
    assert turn_of(messages) == 1
    assert turn_of([*messages, {"role": "assistant", "content": "4", "tool_calls": None}]) == 2
