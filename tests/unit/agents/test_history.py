"""What of a conversation is sent, and that each prompt can be rebuilt from the record: by requests that a server received."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.agents.history import HistoryPolicy
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.sent_messages import PLACEHOLDER, LeftOut, sent_messages
from rollout_tasks.trajectories.reader import Trajectory, read_trajectory
from tests.unit.agents.chat_endpoint import ChatEndpoint, Gallery, play, pushes, said

TURNS = 7
NOTE = {"type": "text", "text": PLACEHOLDER}
LIMITS = [None, 0, 1, 2, 3, 10]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[ChatEndpoint]:
    endpoint = ChatEndpoint()
    yield endpoint
    endpoint.close()


def parts(messages: list[dict[str, Any]]) -> list[Any]:
    """All parts of all messages, in order; a message without parts is one."""
    content = [message["content"] for message in messages]
    return [part for one in content for part in (one if isinstance(one, list) else [one])]


def pictures(messages: list[dict[str, Any]]) -> list[str]:
    return [part["image_url"]["url"] for part in parts(messages) if "image_url" in (part or ())]


def placeholders(messages: list[dict[str, Any]]) -> int:
    return parts(messages).count(NOTE)


def kept_parts(messages: list[dict[str, Any]], kept: list[str]) -> list[Any]:
    """Everything but the pictures that are not among those kept."""
    return [part for part in parts(messages) if "image_url" not in (part or ()) or part["image_url"]["url"] in kept]


@pytest.mark.parametrize("most", [*range(21), 101])
def test_a_prompt_has_at_most_the_limit_and_at_least_half_of_it(most: int) -> None:
    policy = HistoryPolicy(most)
    dropped = [policy.left_out(count).pictures for count in range(300)]

    for count, gone in enumerate(dropped):
        assert min(count, most // 2 + bool(most)) <= count - gone <= most
    steps = [later - earlier for earlier, later in itertools.pairwise(dropped)]
    assert set(steps) <= {0, max(1, most // 2)}, "dropped in steps, and none comes back"


def test_without_a_limit_all_pictures_stay() -> None:
    assert {HistoryPolicy(None).left_out(count).pictures for count in range(300)} == {0}


def test_by_default_ten_stay_and_thinking_does_not() -> None:
    policy = HistoryPolicy.of(ModelConfig())

    assert policy == HistoryPolicy(10, keep_thinking=False)
    assert [policy.left_out(count).pictures for count in (10, 11, 15, 16, 50)] == [0, 5, 5, 10, 40]


def rehearse(
    endpoint: ChatEndpoint, world: Gallery, folder: Path, *, calls: int = 1, **model: Any
) -> tuple[list[list[dict[str, Any]]], Trajectory]:
    """Plays an episode with so many calls a turn; the messages of each request, and what was recorded."""
    turns = [pushes(calls, turn=turn, reasoning=f"thought {turn}") for turn in range(1, TURNS)]
    endpoint.will(*turns, said("It is open."))
    play(endpoint, world, folder, **model)
    return [body["messages"] for body in endpoint.bodies], read_trajectory(folder)


@pytest.mark.parametrize("images_in", ["user", "tool"])
@pytest.mark.parametrize("most", LIMITS)
@pytest.mark.parametrize(("shown", "calls"), [(0, 1), (1, 1), (2, 1), (1, 3), (3, 2)])
def test_every_prompt_has_the_newest_pictures_and_is_rebuilt_from_the_record(
    endpoint: ChatEndpoint, tmp_path: Path, shown: int, calls: int, most: int | None, images_in: str
) -> None:
    world = Gallery(shown)

    requests, recorded = rehearse(endpoint, world, tmp_path, calls=calls, max_images=most, images_in=images_in)

    assert len(requests) == len(recorded.replies) == TURNS
    whole = list(recorded.messages)
    assert len(pictures(whole)) == len(world.shown) == len(list(tmp_path.glob("*.png"))), "each is recorded once"
    assert placeholders(whole) == 0
    for sent, reply in zip(requests, recorded.replies, strict=True):
        assert recorded.prompt(reply) == sent
        before = whole[: reply.message_index]
        had, kept = pictures(before), pictures(sent)
        assert len(kept) <= (len(had) if most is None else most)
        assert kept == had[len(had) - len(kept) :], "the newest"
        assert placeholders(sent) == reply.left_out.pictures == len(had) - len(kept)
        assert [message["role"] for message in sent] == [message["role"] for message in before]
        assert len(parts(sent)) == len(parts(before)), "every part is where it was"
        assert [part for part in parts(sent) if part != NOTE] == kept_parts(before, kept), (
            "and only pictures are left out"
        )


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("most", [None, 2])
def test_thinking_goes_back_in_its_field_only_where_it_is_kept(
    endpoint: ChatEndpoint, tmp_path: Path, most: int | None, keep: bool, field: str
) -> None:
    thoughts = ["", *(f"thought {turn} \u00e4" for turn in range(2, TURNS))]
    turns = [pushes(1, turn=turn, **{field: thought}) for turn, thought in enumerate(thoughts, start=1)]
    endpoint.will(*turns, said("It is open."))
    play(endpoint, Gallery(1), tmp_path, keep_thinking=keep, max_images=most)

    recorded = read_trajectory(tmp_path)
    assert [reply.thinking for reply in recorded.replies] == [*({field: thought} for thought in thoughts), {}]
    assert not any(field in message for message in recorded.messages)
    for number, (body, reply) in enumerate(zip(endpoint.bodies, recorded.replies, strict=True)):
        assert recorded.prompt(reply) == body["messages"]
        replies = [message for message in body["messages"] if message["role"] == "assistant"]
        assert [message.get(field) for message in replies] == (thoughts[:number] if keep else [None] * number)


@pytest.mark.parametrize("ended", ["tool_calls", "length"])
def test_what_an_endpoint_wants_back_with_a_call_it_gets_back(
    endpoint: ChatEndpoint, tmp_path: Path, ended: str
) -> None:
    extra = {"google": {"thought_signature": "c2lnbmF0dXJl" * 500}}
    signed = pushes(2, turn=1, finish_reason=ended)
    signed["message"]["tool_calls"][0]["extra_content"] = extra
    endpoint.will(signed, pushes(1, turn=2), said("It is open."))
    play(endpoint, Gallery(1), tmp_path)

    for body in endpoint.bodies[1:]:
        calls = body["messages"][2]["tool_calls"]
        assert [call.get("extra_content") for call in calls] == [extra, None]
    recorded = read_trajectory(tmp_path)
    assert [recorded.prompt(reply) for reply in recorded.replies] == [body["messages"] for body in endpoint.bodies]


def test_a_model_without_thinking_gets_no_field_for_it(endpoint: ChatEndpoint, tmp_path: Path) -> None:
    endpoint.will(pushes(1, turn=1, reasoning=None), said("It is open.", reasoning_content={"text": "odd"}))
    play(endpoint, Gallery(0), tmp_path, keep_thinking=True)

    assert [reply.thinking for reply in read_trajectory(tmp_path).replies] == [{}, {}]
    assert "reasoning" not in json.dumps(endpoint.bodies)


def test_prompts_are_rebuilt_after_unusable_replies_too(endpoint: ChatEndpoint, tmp_path: Path) -> None:
    cut_off = said("The door", finish_reason="length", reasoning="long")
    endpoint.will(cut_off, pushes(2, turn=2), said(""), pushes(2, turn=4), cut_off, said("It is open."))
    play(endpoint, Gallery(2), tmp_path, max_images=3, keep_thinking=True)

    recorded = read_trajectory(tmp_path)
    assert [recorded.prompt(reply) for reply in recorded.replies] == [body["messages"] for body in endpoint.bodies]


def test_fifty_screenshots_are_no_longer_sent_and_few_turns_change_what_was_sent(endpoint: ChatEndpoint) -> None:
    endpoint.will(*[pushes(1, turn=turn) for turn in range(1, 50)], said("It is open."))
    play(endpoint, Gallery(1))

    requests = [body["messages"] for body in endpoint.bodies]
    assert [len(pictures(sent)) for sent in requests] == [*range(1, 11), *([*range(6, 11)] * 8)]
    changed = [before != after[: len(before)] for before, after in itertools.pairwise(requests)]
    assert sum(changed) == 8, "what a prefix cache holds is changed in every fifth turn"


def test_pictures_left_on_disk_are_left_out_likewise(endpoint: ChatEndpoint, tmp_path: Path) -> None:
    requests, _ = rehearse(endpoint, Gallery(1), tmp_path, max_images=2)

    recorded = read_trajectory(tmp_path, images=False)
    last = recorded.prompt(recorded.replies[-1])
    assert placeholders(last) == placeholders(requests[-1])
    assert pictures(last) == [{"$file": "step_005.png"}, {"$file": "step_006.png"}]


def test_a_conversation_is_not_changed_by_what_is_left_out() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    whole = [{"role": "user", "content": ["text", picture, picture]}, {"role": "assistant", "content": None}]
    before = json.dumps(whole)

    sent = sent_messages(whole, {1: {"reasoning": "hm"}}, LeftOut(1, thinking=False))

    assert sent[0]["content"] == ["text", NOTE, picture]
    assert sent[1] == {"role": "assistant", "content": None, "reasoning": "hm"}
    assert json.dumps(whole) == before
