"""The record of model calls: what was served is read back, and what cannot be true is said with its place."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.errors import FailureClass
from rollout_tasks.models.base import Usage
from rollout_tasks.models.served import Served, VersionSpan
from rollout_tasks.models.served_call import CallFactsError, Sampled, ServedCall
from rollout_tasks.trajectories.call_reader import CallRecordError, read_calls
from rollout_tasks.trajectories.calls import CALLS_NAME, CallWriter


def picture(content: bytes, kind: str = "png") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{b64encode(content).decode()}"}}


TASK = {
    "role": "user",
    "content": [{"type": "text", "text": "Click. \ud83d"}, picture(b"one"), picture(b"two", "jpeg")],
}
SAID = {"role": "assistant", "content": "clicked", "reasoning": "hm"}
TOOLS = [{"type": "function", "function": {"name": "click", "parameters": {"type": "object"}}}]
CALL = ServedCall(
    id="call_1",
    number=1,
    began=10.0,
    ended=11.5,
    dialect="messages",
    asked_model="claude",
    outcome="served",
    messages=[TASK],
    tools=TOOLS,
    sampling={"temperature": 1.0},
    model="policy",
    reply=SAID,
    finish_reason="stop",
    usage=Usage(7, 2, 3, 1.5),
    sampled=Sampled(prompt_ids=(1, 2), output_ids=(3, 4), logprobs=(-0.5, -0.25)),
    served=Served("r1", "v1", "v2", (VersionSpan("v1", 0, 1), VersionSpan("v2", 1, 2))),
)
FAILED = replace(
    CALL,
    id="call_2",
    number=2,
    messages=[TASK, SAID, {"role": "user", "content": [picture(b"two", "jpeg"), picture(b"one")]}],
    outcome="failed",
    reply=None,
    sampled=Sampled(),
    served=Served(),
    failure_class=FailureClass.MODEL_OVERLOAD,
    sentence="it did not answer",
)


def write(folder: Path, *calls: ServedCall) -> list[bytes]:
    with CallWriter(folder, {"session": "s"}) as writer:
        for call in calls:
            writer.record(call)
    return (folder / CALLS_NAME).read_bytes().splitlines()


def plain(call: ServedCall) -> ServedCall:
    return replace(call, messages=list(call.messages), tools=list(call.tools))


def test_calls_are_read_back_as_they_were(tmp_path: Path) -> None:
    write(tmp_path, CALL, FAILED)

    record = read_calls(tmp_path)

    assert record.header == {"session": "s"}
    assert [plain(call) for call in record.calls] == [CALL, FAILED]
    assert record.torn is None
    one, two = record.pictures[1]
    assert record.pictures[2] == (one, two, two, one)
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == sorted([f"{one}.png", f"{two}.jpeg"])


def test_what_is_sent_again_is_not_written_again(tmp_path: Path) -> None:
    lines = write(tmp_path, CALL, FAILED)

    assert [json.loads(line)["kind"] for line in lines] == [
        "start", "message", "message", "tools", "call", "message", "call",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a.png",
        "data:image/png;base64,b25l\n",
        "data:image/png;base64,b25",
        "data:image/svg;base64,b25l",
        "data:image/png;base64,\u00e9",
        "data:image/../x;base64,b25l",
        {"$file": 1},
    ],
)
def test_a_picture_that_could_not_be_restored_stays_as_it_is(tmp_path: Path, url: Any) -> None:
    call = replace(CALL, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}])
    if isinstance(url, dict):
        write(tmp_path, call)
        with pytest.raises(CallRecordError, match="line 2: not a line of a record of calls"):
            read_calls(tmp_path)
        return

    write(tmp_path, call)

    assert list(read_calls(tmp_path).calls[0].messages) == call.messages
    assert not (tmp_path / "pictures").exists()


def test_a_torn_last_line_is_dropped_and_said(tmp_path: Path) -> None:
    write(tmp_path, CALL, FAILED)
    path = tmp_path / CALLS_NAME
    path.write_bytes(path.read_bytes()[:-5])

    record = read_calls(tmp_path)

    assert [call.number for call in record.calls] == [1]
    assert record.torn == f"{path}: line 7 is cut off and was dropped"


UNTRUE = {
    "call 1 has 1 log-probabilities for 2 ids of output tokens": {"sampled": Sampled((), (1, 2), (), (-1.0,))},
    "call 1 has 2 log-probabilities for 1 texts of output tokens": {"sampled": Sampled((), (), ("a",), (-1.0, -2.0))},
    "call 1 has nan as log-probability 1": {"sampled": Sampled((), (1, 2), (), (-1.0, float("nan")))},
    "call 1 has -inf as log-probability 0": {"sampled": Sampled(logprobs=(float("-inf"),))},
    "call 1 has -1 as prompt id 1": {"sampled": Sampled(prompt_ids=(3, -1))},
    "call 1 has True as output id 0": {"sampled": Sampled(output_ids=(True,))},
    "call 1 has version span 1 from 2 to 3, where 1 is next": {
        "served": Served(spans=(VersionSpan("a", 0, 1), VersionSpan("b", 2, 3)))
    },
    "call 1 has version spans for 1 tokens, but 2 output ids": {"served": Served(spans=(VersionSpan("a", 0, 1),))},
    "call 1 begins at 12.0 and ends at 11.5": {"began": 12.0},
    "call 1 is served, without a reply": {"reply": None},
    "call 1 is served, with failure class model": {"failure_class": FailureClass.MODEL},
}


@pytest.mark.parametrize(("said", "changes"), UNTRUE.items(), ids=UNTRUE.keys())
def test_what_cannot_be_true_is_not_written(tmp_path: Path, said: str, changes: dict[str, Any]) -> None:
    with CallWriter(tmp_path, {}) as writer, pytest.raises(CallFactsError, match=said):
        writer.record(replace(CALL, **changes))

    assert not read_calls(tmp_path).calls


def test_a_call_is_not_written_after_the_end(tmp_path: Path) -> None:
    writer = CallWriter(tmp_path, {})
    writer.finish()
    writer.finish()

    with pytest.raises(OSError, match="the record is finished"):
        writer.record(CALL)


DAMAGED = {
    "line 5: call 1 has 1 log-probabilities for 2 ids": (5, lambda line: line["sampled"].update(logprobs=[-1.0])),
    "line 5: sampled.output_ids.0: ": (5, lambda line: line["sampled"].update(output_ids=["x", 1])),
    "line 5: call 1 has -3 as output id 0": (5, lambda line: line["sampled"].update(output_ids=[-3, 1])),
    "line 5: not a line of a record of calls: no line before has number 9": (5, lambda line: line.update(reply=9)),
    "line 5: not a line of a record of calls: no line before has number True": (
        5,
        lambda line: line.update(tools=True),
    ),
    "line 5: not a line of a record of calls: 'messages' is missing": (5, lambda line: line.pop("messages")),
    "line 7: call 1 is there twice": (7, lambda line: line.update(number=1)),
    "line 3: not a line of a record of calls: number 7 where 1 is next": (3, lambda line: line.update(number=7)),
    "line 1: not a line of a record of calls: unknown kind 'x'": (1, lambda line: line.update(kind="x")),
    "line 2: not a line of a record of calls: '../../etc/passwd' is not a picture's name": (
        2,
        lambda line: line["message"]["content"][1]["image_url"].update(url={"$file": "../../etc/passwd"}),
    ),
}


@pytest.mark.parametrize(("said", "damage"), DAMAGED.items(), ids=DAMAGED.keys())
def test_a_damaged_record_is_refused_with_its_place(tmp_path: Path, said: str, damage: Any) -> None:
    lines = [json.loads(line) for line in write(tmp_path, CALL, FAILED)]
    number, change = damage
    change(lines[number - 1])
    path = tmp_path / CALLS_NAME
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    with pytest.raises(CallRecordError) as caught:
        read_calls(tmp_path)

    assert f"{path}: {said}" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file"), (b"other", "another content than its name says")]
)
def test_a_picture_must_be_the_one_that_was_sent(tmp_path: Path, content: bytes | None, said: str) -> None:
    write(tmp_path, CALL)
    for file in (tmp_path / "pictures").iterdir():
        file.unlink()
        if content is not None:
            file.write_bytes(content)

    with pytest.raises(CallRecordError, match=said):
        read_calls(tmp_path)
    assert read_calls(tmp_path, images=False).calls[0].number == 1
