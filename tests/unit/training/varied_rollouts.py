"""Runs whose rollouts are of several kinds of agents, as the real writers record them; made from their number alone."""

from __future__ import annotations

import json
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import Observation, ToolCall, ToolResult
from rollout_tasks.environments.osworld.action_spaces.base import CONTROL
from rollout_tasks.environments.osworld.action_spaces.pyautogui import SCRIPT
from rollout_tasks.errors import FailureClass
from rollout_tasks.models.base import Reply, Usage
from rollout_tasks.models.sent_messages import LeftOut
from rollout_tasks.models.served_call import Sampled, ServedCall
from rollout_tasks.runs.finalize import score_run
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.trajectories.calls import CallWriter
from rollout_tasks.trajectories.writer import TrajectoryWriter

CLICK = {
    "type": "function",
    "function": {
        "name": "click",
        "description": "Clicks.",
        "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
    },
}
Message = dict[str, Any]


def png(number: int) -> bytes:
    """A picture of 4 x 4 pixels, another for each number."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + number.to_bytes(4, "big") * 3 for _ in range(4))
    header = struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def shown(picture: bytes) -> Message:
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + b64encode(picture).decode()}}


def text(said: str) -> Message:
    return {"type": "text", "text": said}


def tool_agent(folder: Path, number: int) -> None:
    """An agent with tools that keeps two screenshots; three turns, the last of which is an answer."""
    writer = TrajectoryWriter(folder)
    writer.start({"question": "Go."})
    first = Observation("", (png(number),))
    writer.observed(first)
    messages: list[Message] = [
        {"role": "system", "content": "Act."},
        {"role": "user", "content": [text(f"Task {number} with <image> in it"), shown(first.images[0])]},
    ]
    for one in messages:
        writer.message(one)
    thinking = {"reasoning": f"hm {number}"} if number % 2 else {}
    for turn in (1, 2, 3):
        asked = {"id": f"c{turn}", "type": "function", "function": {"name": "click", "arguments": f'{{"x": {turn}}}'}}
        message: Message = {
            "role": "assistant",
            "content": "look <tool_call>" if turn == 2 else None,
            "tool_calls": [asked],
        }
        if turn == 3:
            message = {"role": "assistant", "content": f"done {number}"}
        tokens = {"prompt_token_ids": [1, 2], "token_ids": [3], "logprobs": [-0.5]}
        reply = Reply(message, "", (), "stop", Usage(10, 5), "policy", tokens, thinking)
        writer.message(message, turn=turn, reply=reply, left_out=LeftOut(max(0, turn - 2)), tools=[CLICK])
        if turn < 3:
            seen = png(number + turn)
            result = ToolResult("success", "clicked", Observation("a tree", (seen,)))
            writer.step(turn=turn, call=ToolCall(f"c{turn}", "click", {"x": turn}), result=result, seconds=0.25)
            writer.message({"role": "tool", "tool_call_id": f"c{turn}", "content": "clicked"}, turn=turn)
            writer.message({"role": "user", "content": [text("The screen:"), shown(seen)]}, turn=turn)
    writer.finish()


def text_agent(folder: Path, number: int) -> None:
    """An agent that writes code as text, with prompts of its own: the last screenshot alone, and a failed reply corrected."""
    writer = TrajectoryWriter(folder)
    writer.start({"question": "Go."})
    history: list[Message] = [{"role": "system", "content": f"You act on {number}."}]
    for turn in (1, 2):
        picture = png(1000 + number + turn)
        prompt = [*history, {"role": "user", "content": [shown(picture)]}]
        message = {"role": "assistant", "content": f"<think>a</think>\nclick({turn})"}
        reply = Reply(message, "", (), "stop", Usage(8, 4), "policy")
        writer.message(message, turn=turn, reply=reply, prompt=prompt)
        word = "DONE" if turn == 2 else "pyautogui.click(1, 1)"
        call = (
            ToolCall(f"turn-{turn}-1", CONTROL.name, {"action": "done"})
            if turn == 2
            else ToolCall(f"turn-{turn}-1", SCRIPT.name, {"script": word})
        )
        result = ToolResult("success", word, Observation("", (png(2000 + number),)), "done" if turn == 2 else None)
        writer.step(turn=turn, call=call, result=result, seconds=0.5)
        history += [
            {"role": "user", "content": [text("(left out)")]},
            {"role": "assistant", "content": [text(message["content"])]},
        ]
    writer.finish()
    (folder / "recording.mp4").write_bytes(b"film %d" % number)


def claude_agent(folder: Path, number: int) -> None:
    """An agent in Anthropic's Messages API."""
    writer = TrajectoryWriter(folder)
    writer.start({"question": "Go."})
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(png(3000 + number)).decode()}
    prompt: list[Message] = [
        {"role": "system", "content": "Act."},
        {"role": "user", "content": [{"type": "image", "source": source}, text("Go.")]},
    ]
    used = {"type": "tool_use", "id": "t1", "name": "computer", "input": {"action": "key", "type": "image"}}
    message = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, text("ok"), used],
    }
    reply = Reply(message, "ok", (), "tool_use", Usage(9, 3), "claude")
    tools = [{"type": "computer_20250124", "name": "computer", "display_width_px": 4, "display_height_px": 4}]
    writer.message(message, turn=1, reply=reply, prompt=prompt, tools=tools)
    call = ToolCall("turn-1-1", SCRIPT.name, {"script": "pyautogui.press('a')"})
    writer.step(turn=1, call=call, result=ToolResult("success", "", Observation("", (png(number),))), seconds=1.0)
    writer.finish()


def responses_agent(folder: Path, number: int) -> None:
    """An agent in the Responses API."""
    writer = TrajectoryWriter(folder)
    writer.start({"question": "Go."})
    picture = "data:image/png;base64," + b64encode(png(4000 + number)).decode()
    prompt: list[Message] = [
        {
            "role": "user",
            "content": [{"type": "input_image", "image_url": picture}, {"type": "input_text", "text": "Go."}],
        }
    ]
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]},
    ]
    message = {"role": "assistant", "output": output, "status": "completed"}
    writer.message(message, turn=1, reply=Reply(message, "ok", (), "stop", Usage(9, 3), "cua"), prompt=prompt)
    writer.finish()


def session(folder: Path, number: int) -> None:
    """A program with a client of its own, recorded by the session gateway: it asks twice the same."""
    said: list[Message] = [{"role": "user", "content": [text("Go."), shown(png(5000 + number))]}]
    with CallWriter(folder, {"agent": "other"}) as writer:
        for call in (1, 2, 3):
            reply = {"role": "assistant", "content": f"answer {call}", "reasoning_content": "hm"}
            facts = ServedCall(
                id=f"call-{call}",
                number=call,
                began=1_700_000_000.0 + call,
                ended=1_700_000_001.0 + call,
                dialect="chat",
                asked_model="m",
                outcome="served",
                messages=list(said),
                model="policy",
                reply=reply,
                finish_reason="stop",
                usage=Usage(5, 2),
                sampled=Sampled((1, 2), (3,), (), (-0.5,)),
            )
            writer.record(facts)
            if call == 2:
                said += [{"role": "assistant", "content": "answer 2"}, {"role": "user", "content": "And?"}]


KINDS: Sequence[Callable[[Path, int], None]] = (tool_agent, text_agent, session, claude_agent, responses_agent)
"""How a rollout is recorded, by its number."""


def kind_of(number: int) -> Callable[[Path, int], None]:
    return KINDS[number % len(KINDS)]


def item_of(number: int) -> Item:
    """Items with ids that are no file names, and ids that are."""
    name = f"../a b/{number}" if number % 7 == 0 else f"item-{number}"
    return Item(name, "Go.", metadata={"domain": ("chrome", "os", "../up")[number % 3]})


def varied_run(
    path: Path, items: int, kinds: Sequence[Callable[[Path, int], None]] = KINDS, *, rollouts: int = 1
) -> RunFolder:
    """A scored run: a rollout in nine is lost, and one in five has failed."""
    folder = RunFolder(path)
    config = RunConfig(
        rollouts_per_item=rollouts, desktop={"action_space": "pyautogui", "observation_type": "screenshot"}
    )
    folder.description.create(config, [item_of(number) for number in range(items)], data_path="x.jsonl", data_name="x")
    for number in range(items):
        for index in range(rollouts):
            end(folder, number, index, kinds[number % len(kinds)])
    score_run(folder, "exact_match")
    return folder


def end(folder: RunFolder, number: int, index: int, record: Callable[[Path, int], None]) -> None:
    rollout_id = f"{item_of(number).id}#{index}"
    attempt = folder.begin_attempt(rollout_id, 1)
    record(folder.attempt(rollout_id, attempt), number)
    failure = FailureClass.VM_LOST if number % 9 == 8 else FailureClass.MAX_TURNS if number % 5 == 4 else None
    score = None if failure else 1.0 / (1 + number % 2)
    verdict = Verdict(rollout_id, attempt, "failed" if failure else "completed", score=score, failure_class=failure)
    folder.write_attempt(verdict)
    folder.settle(verdict, written=True)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]
