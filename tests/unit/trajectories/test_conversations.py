from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_tasks.trajectories.conversations import conversations_of
from rollout_tasks.trajectories.model_calls import ModelCall, read_model_calls
from rollout_tasks.trajectories.reader import TrajectoryError
from tests.unit.training.varied_rollouts import KINDS, png

Message = dict[str, Any]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def said(text: str) -> Message:
    return {"role": "assistant", "content": text}


def call(number: int, prompt: list[Message], reply: str, *, model: str = "m", tools: tuple[Any, ...] = ()) -> ModelCall:
    return ModelCall(number, tuple(prompt), said(reply), "", tools, model, "stop")


def sampled(calls: list[ModelCall]) -> list[list[tuple[int, int]]]:
    """For each conversation, the places of its own replies with their calls' numbers."""
    return [[(place, one.number) for place, one in found.sampled.items()] for found in conversations_of(calls)]


def test_prompts_that_extend_each_other_are_one_conversation() -> None:
    calls = [call(1, [user("a")], "b"), call(2, [user("a"), said("b"), user("c")], "d")]

    [found] = conversations_of(calls)

    assert found.messages == (user("a"), said("b"), user("c"), said("d"))
    assert sampled(calls) == [[(1, 1), (3, 2)]]


def test_a_prompt_that_lacks_something_begins_another() -> None:
    assert sampled([call(1, [user("a")], "b"), call(2, [user("(left out)"), said("b")], "d")]) == [[(1, 1)], [(2, 2)]]


def test_another_model_and_other_tools_begin_another() -> None:
    longer = [user("a"), said("b")]

    assert sampled([call(1, [user("a")], "b"), call(2, longer, "c", model="n")]) == [[(1, 1)], [(2, 2)]]
    assert sampled([call(1, [user("a")], "b"), call(2, longer, "c", tools=({"type": "x"},))]) == [[(1, 1)], [(2, 2)]]


def test_branches_share_what_was_sampled_once() -> None:
    first, longer = [user("a")], [user("a"), said("b"), user("c")]

    assert sampled([call(1, first, "b"), call(2, longer, "x"), call(3, longer, "y")]) == [[(1, 1), (3, 2)], [(3, 3)]]
    assert sampled([call(1, first, "b"), call(2, first, "b"), call(3, longer, "x")]) == [[(1, 1), (3, 3)], [(1, 2)]]


def test_a_text_may_come_back_as_a_part_and_without_thinking() -> None:
    back = {"role": "assistant", "content": [{"type": "text", "text": "b"}], "tool_calls": None, "reasoning": "hm"}

    [found] = conversations_of([call(1, [user("a")], "b"), call(2, [user("a"), back], "c")])

    assert found.messages == (user("a"), said("b"), said("c"))


def test_another_picture_begins_another() -> None:
    def seen(name: str) -> Message:
        return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": {"$file": name}}}]}

    assert len(conversations_of([call(1, [seen("a")], "x"), call(2, [seen("b"), said("x")], "y")])) == 2


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.booleans()), max_size=12))
def test_each_reply_is_sampled_once_after_its_own_prompt(turns: list[tuple[int, str, bool]]) -> None:
    history: list[Message] = [user("go")]
    calls: list[ModelCall] = []
    for number, (dropped, text, kept) in enumerate(turns, 1):
        prompt = history[dropped:] or [user("go")]
        calls.append(call(number, prompt, text))
        history += [said(text), user("next")] if kept else []

    found = conversations_of(calls)

    assert Counter(one.number for each in found for one in each.sampled.values()) == Counter(
        one.number for one in calls
    )
    for each in found:
        for place, one in each.sampled.items():
            assert each.messages[: place + 1] == (*one.prompt, one.reply)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_agent_is_read(kind: Any, tmp_path: Path) -> None:
    kind(tmp_path, 1)

    episode = read_model_calls(tmp_path)

    names = {one for each in episode.calls for one in map(str, files_in(each.prompt))}
    assert names == set(episode.pictures.files) != set()
    assert all(name.endswith(".png") and path.is_file() for name, path in episode.pictures.files.items())
    assert [one.number for one in episode.calls] == list(range(1, len(episode.calls) + 1))


def files_in(value: Any) -> list[str]:
    if isinstance(value, dict) and "$file" in value:
        return [value["$file"]]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [name for one in inner for name in files_in(one)]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ('{"$file": "step_000.png"}', '{"$file": "../other.png"}', "not the name of a picture's file"),
        ('{"$file": "step_000.png"}', '{"$file": "trajectory.jsonl"}', "not the name of a picture's file"),
        ('{"$file": "step_000.png"}', '{"$file": "link.png"}', "link.png"),
        ('{"$file": "step_000.png"}', '{"$file": "gone.png"}', "No such file"),
        ('{"$file": "step_000.png"}', '"https://a.org/b.png"', "a picture that is in no file"),
    ],
)
def test_pictures_that_are_not_beside_the_record_are_refused(
    tmp_path: Path, before: str, after: str, reason: str
) -> None:
    attempt = tmp_path / "attempt"
    KINDS[0](attempt, 1)
    (tmp_path / "other.png").write_bytes(png(9))
    (attempt / "link.png").symlink_to(tmp_path / "other.png")
    record = attempt / "trajectory.jsonl"
    text = record.read_text()
    assert before in text
    record.write_text(text.replace(before, after))

    with pytest.raises(TrajectoryError, match=reason):
        read_model_calls(attempt)


def test_half_a_surrogate_pair_is_replaced(tmp_path: Path) -> None:
    KINDS[0](tmp_path, 1)
    record = tmp_path / "trajectory.jsonl"
    record.write_text(record.read_text().replace('"done 1"', '"\\ud83d"'))

    assert read_model_calls(tmp_path).calls[-1].reply["content"] == "\N{REPLACEMENT CHARACTER}"
