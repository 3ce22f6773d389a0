"""A model's endpoint as a seed says. Where it is good, it acts once in whatever environment asks, and then ends."""

from __future__ import annotations

import json
from typing import Any

from benchmark.items import Item
from tests.hostile.random_replies.answers import Answer, AnswerServer, Request, Sent, spoiled
from tests.hostile.random_replies.mutations import Mutator

ANSWER = "The result is 36."
_ACTS: dict[str, dict[str, Any]] = {
    "calculator": {"expressions": ["3*12", "2**0.5"]},
    "desktop_type": {"text": "hello"},
    "desktop_execute_python_script": {"script": "pyautogui.press('a')"},
    "computer": {"action": "left_click", "coordinate": [10, 20]},
}
_END = ("desktop_control", {"action": "done"})


class ModelStage:
    """A hostile model, in an environment that needs nothing else."""

    kind = "model"
    max_seconds = 3.0
    """How long an attempt may take."""

    def __init__(self, key: str) -> None:
        """Begins to listen.

        Args:
            key: What it may say of the key that it got.
        """
        self._key = key
        self._server = AnswerServer(self._answer)
        self.mistakes = self._server.mistakes

    def begin(self, seed: int | None) -> tuple[Item, dict[str, Any]]:
        """From now on it answers as this seed says, well without one; the item and the configuration of an attempt."""
        self._seed, self._asked = seed, 0
        self._share = Mutator(f"model {seed}").random.choice((0.3, 1.0, 1.0))
        url = f"http://127.0.0.1:{self._server.port}/v1"
        model = {"base_url": url, "name": "random", "timeout": 60.0 if seed is None else 1.5, "max_retries": 2}
        limits = {"max_turns": 4, "max_seconds": 100.0 if seed is None else self.max_seconds}
        item = Item(f"{self.kind}-{seed}", "How many are 3 bags of 12?", "36")
        return item, {"env_mode": "math", "model": model, "limits": limits}

    def close(self) -> None:
        """Ends it."""
        self._server.close()

    def _answer(self, request: Request) -> Sent:
        good = reply(request)
        mutator = Mutator(f"model {self._seed} {self._asked}")
        self._asked += 1
        if self._seed is None or not mutator.chance(self._share):
            return good
        if mutator.chance(0.25):
            good = Answer(json.dumps({"error": {"message": f"The API key {self._key} is wrong"}}).encode(), status=401)
        if mutator.chance(0.5):
            good.body = mutator.json(json.loads(good.body))
            return good
        return spoiled(mutator, good, self.max_seconds + 5)


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
