"""Good replies of Chat Completions: one act in whatever environment asks, and then its end."""

from __future__ import annotations

import json
from typing import Any

from tests.hostile.raw_http import Answer, Request

ANSWER = "The result is 36."
_ACTS: dict[str, dict[str, Any]] = {
    "calculator": {"expressions": ["3*12", "2**0.5"]},
    "desktop_type": {"text": "hello"},
    "desktop_execute_python_script": {"script": "pyautogui.press('a')"},
    "computer": {"action": "left_click", "coordinate": [10, 20]},
}
_END = ("desktop_control", {"action": "done"})


def reply(request: Request) -> Answer:
    """The answer to a request for a completion."""
    asked = json.loads(request.body)
    said = sum(message.get("role") == "assistant" for message in asked["messages"])
    tools = [tool["function"]["name"] for tool in asked.get("tools", [])]
    if said == 0 and (act := next((name for name in _ACTS if name in tools), None)):
        message = _calls((act, _ACTS[act]))
    elif _END[0] in tools:
        message = _calls(_END)
    else:
        message = {"role": "assistant", "content": ANSWER}
    choice = {"index": 0, "message": message, "finish_reason": "stop" if message["content"] else "tool_calls"}
    choice["logprobs"] = {"content": [{"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}]}
    choice["token_ids"] = [1, 2, 3]
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "good",
        "choices": [choice],
        "usage": {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55},
        "prompt_token_ids": [4, 5, 6],
    }
    return Answer(json.dumps(body).encode())


def _calls(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    asked = [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for number, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": asked}
