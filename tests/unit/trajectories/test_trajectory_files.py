from __future__ import annotations

import json
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.environments.base import Observation, ToolCall, ToolResult
from rollout_tasks.models.base import Reply, Usage
from rollout_tasks.models.sent_messages import LeftOut
from rollout_tasks.models.served import Served
from rollout_tasks.trajectories import data_urls
from rollout_tasks.trajectories import writer as trajectory_writer
from rollout_tasks.trajectories.reader import TrajectoryError, read_trajectory
from rollout_tasks.trajectories.writer import TrajectoryWriter

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
OTHER_PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(100, 250))


def data_url(image: bytes) -> str:
    return "data:image/png;base64," + b64encode(image).decode()


def with_image(image: bytes) -> dict[str, Any]:
    picture = {"type": "image_url", "image_url": {"url": data_url(image), "detail": "high"}}
    return {"role": "user", "content": [{"type": "text", "text": "look"}, picture]}


def write_episode(directory: Path, *, enabled: bool = True) -> TrajectoryWriter:
    writer = TrajectoryWriter(directory, enabled=enabled)
    writer.start({"item_id": "a/b", "model": "m"})
    writer.observed(Observation("start", (PNG,)))
    writer.message({"role": "system", "content": "Act."})
    writer.message(with_image(PNG))
    asked = {"id": "c1", "type": "function", "function": {"name": "click", "arguments": '{"x":1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [asked]}
    reply = Reply(
        message,
        "",
        (),
        "tool_calls",
        Usage(10, 5, 2, 0.5),
        "m-v1",
        {"token_ids": [1, 2]},
        {"reasoning": "hm"},
        served=Served("gpu-1:8000", "step-1", "step-2"),
    )
    writer.message(message, turn=1, reply=reply, left_out=LeftOut(1, thinking=False))
    result = ToolResult("success", "clicked", Observation("x" * 5000, (OTHER_PNG,)), "done")
    writer.step(turn=1, call=ToolCall("c1", "click", {"x": 1}), result=result, seconds=0.25)
    writer.message({"role": "tool", "tool_call_id": "c1", "content": "half a pair: \ud83d, and 'ä\u2028'"}, turn=1)
    writer.message(with_image(OTHER_PNG), turn=1)
    writer.finish()
    return writer


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    writer = write_episode(tmp_path)

    trajectory = read_trajectory(tmp_path)

    assert list(trajectory.messages) == writer.messages
    assert trajectory.header == {"item_id": "a/b", "model": "m"}
    assert trajectory.first_observation is not None
    assert trajectory.first_observation.images == (tmp_path / "step_000.png",)
    (step,) = trajectory.steps
    assert (step.number, step.turn, step.name, dict(step.arguments)) == (1, 1, "click", {"x": 1})
    assert (step.status, step.response, step.ends_episode, step.seconds) == ("success", "clicked", "done", 0.25)
    assert step.observation is not None
    assert step.observation.text == "x" * 5000
    assert step.observation.images[0].read_bytes() == OTHER_PNG
    (reply,) = trajectory.replies
    assert (reply.turn, reply.message_index, reply.token_data) == (1, 2, {"token_ids": [1, 2]})
    assert (reply.thinking, reply.left_out) == ({"reasoning": "hm"}, LeftOut(1, thinking=False))
    assert (reply.prompt_tokens, reply.completion_tokens, reply.requests, reply.served_by) == (10, 5, 2, "m-v1")
    assert reply.served == {"replica": "gpu-1:8000", "version_at_start": "step-1", "version_at_end": "step-2"}
    assert trajectory.torn is None


def test_each_picture_is_stored_once_and_files_are_few(tmp_path: Path) -> None:
    write_episode(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "messages.json",
        "step_000.png",
        "step_001.png",
        "step_001_a11y.txt",
        "trajectory.jsonl",
    ]
    assert b64encode(PNG) not in (tmp_path / "trajectory.jsonl").read_bytes()


def test_messages_json_holds_the_conversation(tmp_path: Path) -> None:
    write_episode(tmp_path)

    conversation = json.loads((tmp_path / "messages.json").read_text())

    assert [message["role"] for message in conversation["messages"]] == ["system", "user", "assistant", "tool", "user"]
    assert conversation["messages"][1]["content"][1]["image_url"]["url"] == {"$file": "step_000.png"}


def test_images_may_stay_on_disk(tmp_path: Path) -> None:
    write_episode(tmp_path)

    messages = read_trajectory(tmp_path, images=False).messages

    assert messages[4]["content"][1]["image_url"]["url"] == {"$file": "step_001.png"}


@pytest.mark.parametrize(
    "url",
    ["https://example.org/a.png", "data:image/jpeg;base64,AAAA", "data:image/png;base64,not base64!"],
)
def test_urls_that_are_no_png_stay_as_they_are(tmp_path: Path, url: str) -> None:
    message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    writer = TrajectoryWriter(tmp_path)
    writer.start({})
    writer.message(message)
    writer.finish()

    assert read_trajectory(tmp_path).messages == (message,)


def test_disabled_writes_nothing_and_keeps_the_messages(tmp_path: Path) -> None:
    writer = write_episode(tmp_path / "attempt-1", enabled=False)

    assert not (tmp_path / "attempt-1").exists()
    assert len(writer.messages) == 5


def test_a_second_start_replaces_the_first_record(tmp_path: Path) -> None:
    write_episode(tmp_path)
    writer = TrajectoryWriter(tmp_path)
    writer.start({"attempt": 2})

    assert read_trajectory(tmp_path).messages == ()
    writer.finish()


def test_finish_twice_is_harmless(tmp_path: Path) -> None:
    writer = write_episode(tmp_path)
    writer.finish()


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_torn_last_line_is_dropped_and_said(tmp_path: Path, cut: int) -> None:
    write_episode(tmp_path)
    record = tmp_path / "trajectory.jsonl"
    record.write_bytes(record.read_bytes()[:-cut])

    trajectory = read_trajectory(tmp_path)

    assert len(trajectory.messages) == 4
    assert trajectory.torn == f"{record}: line 8 is cut off and was dropped"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not a line of a trajectory: Expecting"),
        (b"[]", "not a line of a trajectory"),
        (b'{"kind": "dance"}', "unknown kind 'dance'"),
        (b'{"kind": "step", "turn": 1}', "'call' is missing"),
        (b'{"kind": "message", "index": 7, "message": {}}', "message 7 where message 0 belongs"),
        (b'{"kind": "tools", "number": 1, "tools": []}', "tools 1 where tools 0 belong"),
        (b'{"kind": "tools", "number": 0, "tools": ["click"]}', "tools must be a list of objects"),
        (b'{"kind": "observation", "observation": {"images": ["../../etc/passwd"]}}', "not a file name"),
        (b'{"kind": "observation", "observation": {"images": [".."]}}', "not a file name"),
        (b'{"kind": "observation", "observation": {"text": {"$file": "gone.txt"}}}', "No such file"),
    ],
)
def test_other_damage_is_an_error_naming_file_and_line(tmp_path: Path, line: bytes, reason: str) -> None:
    record = tmp_path / "trajectory.jsonl"
    record.write_bytes(b'{"kind": "start", "header": {}}\n' + line + b"\n")

    with pytest.raises(TrajectoryError, match=f"{record}: line 2: ") as caught:
        read_trajectory(tmp_path)

    assert reason in str(caught.value)


def reply_line(**facts: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    known = {"finish_reason": "stop", "served_by": "m", "usage": usage, "requests": 1, "seconds": 0.1, **facts}
    message = {"role": "assistant", "content": "Done."}
    return {"kind": "message", "index": 1, "turn": 1, "message": message, "reply": known}


def write_record(directory: Path, *lines: dict[str, Any]) -> Path:
    asked = {"kind": "message", "index": 0, "message": with_image(PNG)}
    text = "".join(json.dumps(line) + "\n" for line in ({"kind": "start", "header": {}}, asked, *lines))
    (directory / "trajectory.jsonl").write_text(text)
    return directory / "trajectory.jsonl"


@pytest.mark.parametrize(
    ("facts", "reason"),
    [({"reply": {"tools": 0}}, "no tools before have number 0"), ({"at": "noon"}, "at must be a number of seconds")],
)
def test_tools_and_moments_that_cannot_be_true(tmp_path: Path, facts: dict[str, Any], reason: str) -> None:
    line = reply_line(**facts.pop("reply", {}))
    write_record(tmp_path, {**line, **facts})

    with pytest.raises(TrajectoryError, match=f"line 3: .*{reason}"):
        read_trajectory(tmp_path)


def test_each_list_of_tools_is_written_once(tmp_path: Path) -> None:
    click, stop = ({"type": "function", "function": {"name": name}} for name in ("click", "stop"))
    began = time.time()
    writer = TrajectoryWriter(tmp_path)
    writer.start({})
    for turn, tools in enumerate([[click], [click, stop], [click], []], 1):
        said = Reply({"role": "assistant", "content": "x"}, "x", (), "stop", Usage())
        writer.message(said.message, turn=turn, reply=said, tools=tools)
    writer.finish()

    replies = read_trajectory(tmp_path).replies

    assert [reply.tools for reply in replies] == [(click,), (click, stop), (click,), ()]
    assert (tmp_path / "trajectory.jsonl").read_text().count('"kind": "tools"') == 2
    assert all(reply.at is not None and began - 1 <= reply.at <= time.time() + 1 for reply in replies)


def test_records_of_earlier_versions_left_nothing_out(tmp_path: Path) -> None:
    write_record(tmp_path, reply_line())

    trajectory = read_trajectory(tmp_path)

    assert trajectory.prompt(trajectory.replies[0]) == [with_image(PNG)]


def test_empty_replies_of_earlier_versions_were_sent_as_they_were(tmp_path: Path) -> None:
    left_out = {"pictures": 0, "thinking": True, "unreadable_arguments": True}
    said_nothing = {"role": "assistant", "content": ""}
    empty, again = reply_line(), reply_line(left_out=left_out)
    write_record(tmp_path, {**empty, "message": said_nothing}, {**again, "index": 2})

    trajectory = read_trajectory(tmp_path)

    assert trajectory.prompt(trajectory.replies[1])[1] == said_nothing


@pytest.mark.parametrize(
    "left_out",
    [
        *(5, [1], "1", {}, {"pictures": 1}, {"thinking": True}, {"pictures": 1, "thinking": 1}),
        *({"pictures": 1, "thinking": True, "cut_off_after": odd} for odd in (-1, True, 1.5, "1")),
        {"pictures": 1, "thinking": True, "unreadable_arguments": "yes"},
        {"pictures": 1, "thinking": True, "empty_replies": 1},
        *({"pictures": odd, "thinking": True} for odd in (None, -1, True, 1.5, "1")),
    ],
)
def test_what_was_left_out_is_checked(tmp_path: Path, left_out: Any) -> None:
    record = write_record(tmp_path, reply_line(left_out=left_out))

    with pytest.raises(TrajectoryError, match=f"{record}: line 3: not a line of a trajectory: "):
        read_trajectory(tmp_path)


@pytest.mark.parametrize("thinking", [5, ["reasoning"], {"reasoning": 5}, {"role": "system"}, None])
def test_thinking_is_checked(tmp_path: Path, thinking: Any) -> None:
    record = write_record(tmp_path, reply_line(thinking=thinking))

    with pytest.raises(TrajectoryError, match=f"{record}: line 3: not a line of a trajectory: "):
        read_trajectory(tmp_path)


def test_no_record_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TrajectoryError, match=r"trajectory\.jsonl: No such file"):
        read_trajectory(tmp_path)


def a_prompt(pictures: list[bytes], kind: str) -> list[dict[str, Any]]:
    encoded = [b64encode(picture).decode() for picture in pictures]
    if kind == "source":
        sources = [{"type": "base64", "media_type": "image/png", "data": data} for data in encoded]
        return [{"role": "user", "content": [{"type": "image", "source": source}]} for source in sources]
    return [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}]}
        for data in encoded
    ]


def answered(prompt: list[dict[str, Any]], writer: TrajectoryWriter) -> None:
    message = {"role": "assistant", "content": "Go on."}
    writer.message(message, turn=1, reply=Reply(message, "Go on.", (), "stop", Usage()), prompt=prompt)


@pytest.mark.parametrize("kind", ["url", "source"])
@pytest.mark.parametrize(("most", "decoded"), [(None, 10), (3_000, 52)])
def test_a_picture_that_is_sent_again_is_not_decoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, most: int | None, decoded: int
) -> None:
    counted: list[int] = []
    decode = data_urls.b64decode
    monkeypatch.setattr(data_urls, "b64decode", lambda *given, **how: counted.append(1) or decode(*given, **how))
    if most is not None:
        monkeypatch.setattr(trajectory_writer, "MAX_KNOWN", most)
    prompt = a_prompt([PNG + bytes([number]) * 600 for number in range(10)], kind)
    writer = TrajectoryWriter(tmp_path)
    writer.start({})
    for turn in range(1, 11):
        answered(prompt[:turn], writer)
    writer.finish()

    assert len(counted) == decoded
    trajectory = read_trajectory(tmp_path)
    assert [trajectory.prompt(reply) for reply in trajectory.replies] == [prompt[:turn] for turn in range(1, 11)]
    assert len(list(tmp_path.glob("*.png"))) == 10


def test_the_record_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """As the writer of version 3a8aa84 wrote it: replies without thinking, left_out and prompt."""
    (tmp_path / "step_000.png").write_bytes(PNG)
    (tmp_path / "step_001.png").write_bytes(OTHER_PNG)
    (tmp_path / "step_001_a11y.txt").write_text("[button] OK" * 300)
    (tmp_path / "trajectory.jsonl").write_text(
        """\
{"kind": "start", "header": {"run_id": "r", "rollout_id": "1/0", "attempt": 1, "question": "Open it.", "model": "m",\
 "worker": "w", "vm_id": "vm-1", "started": 1700000000.5}}
{"kind": "observation", "step": 0, "observation": {"images": ["step_000.png"]}}
{"kind": "message", "index": 0, "message": {"role": "system", "content": "Act."}}
{"kind": "message", "index": 1, "message": {"role": "user", "content": [{"type": "text", "text": "look"},\
 {"type": "image_url", "image_url": {"url": {"$file": "step_000.png"}, "detail": "high"}}]}}
{"kind": "message", "index": 2, "message": {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type":\
 "function", "function": {"name": "click", "arguments": "{\\"x\\":1}"}}]}, "turn": 1, "reply": {"finish_reason":\
 "length", "served_by": "m-v1", "usage": {"prompt_tokens": 10, "completion_tokens": 5}, "requests": 1, "seconds": 0.5,\
 "token_data": {"token_ids": [1, 2]}}}
{"kind": "step", "step": 1, "turn": 1, "call": {"id": "c1", "name": "click", "arguments": {"x": 1}}, "result":\
 {"status": "success", "response": "clicked", "observation": {"text": {"$file": "step_001_a11y.txt"}, "images":\
 ["step_001.png"]}}, "seconds": 0.25}
{"kind": "message", "index": 3, "message": {"role": "tool", "tool_call_id": "c1", "content": "clicked"}, "turn": 1}
{"kind": "message", "index": 4, "message": {"role": "user", "content": [{"type": "text", "text": "look"},\
 {"type": "image_url", "image_url": {"url": {"$file": "step_001.png"}, "detail": "high"}}]}, "turn": 1}
{"kind": "message", "index": 5, "message": {"role": "assistant", "content": "Done."}, "turn": 2, "reply":\
 {"finish_reason": "stop", "served_by": "m-v1", "usage": {"prompt_tokens": 20, "completion_tokens": 5}, "requests": 1,\
 "seconds": 0.5}}
""".replace("\\\n", "")
    )

    trajectory = read_trajectory(tmp_path)

    first, second = trajectory.replies
    assert trajectory.header["worker"] == "w"
    assert (first.thinking, first.left_out, first.sent) == ({}, LeftOut(), None)
    assert trajectory.prompt(first) == [{"role": "system", "content": "Act."}, with_image(PNG)]
    assert trajectory.prompt(second) == list(trajectory.messages[:5])
    assert trajectory.messages[4] == with_image(OTHER_PNG)
    assert trajectory.steps[0].observation is not None
    assert trajectory.steps[0].observation.text == "[button] OK" * 300
    assert trajectory.torn is None
