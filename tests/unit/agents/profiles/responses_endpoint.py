"""A real HTTP endpoint of the Responses API that plays responses in order and keeps the requests."""

from __future__ import annotations

import json
from typing import Any

from tests.hostile.random_replies.answers import Answer, Request
from tests.unit.agents.chat_endpoint import ChatEndpoint


class ResponsesEndpoint(ChatEndpoint):
    """Plays the fields of responses."""

    def _answer(self, request: Request) -> Answer:
        assert request.path.endswith("/responses")
        self.bodies.append(json.loads(request.body))
        whole = {
            "id": f"resp_{len(self.bodies)}",
            "object": "response",
            "created_at": 1,
            "model": "m-1",
            "status": "completed",
            "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        }
        return Answer(json.dumps({**whole, **self.choices.pop(0)}).encode())


def acts(number: int, **action: Any) -> dict[str, Any]:
    """A response that calls the computer, after some thought."""
    thought = {"type": "reasoning", "id": f"rs_{number}", "summary": [{"type": "summary_text", "text": "I see."}]}
    call = {
        "type": "computer_call",
        "id": f"cu_{number}",
        "call_id": f"call_{number}",
        "status": "completed",
        "pending_safety_checks": [],
        "action": action,
    }
    return {"output": [thought, call]}


def says(text: str, **more: Any) -> dict[str, Any]:
    """A response that ends with words."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {
        "output": [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}],
        **more,
    }
