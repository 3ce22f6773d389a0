"""Anthropic's Messages API: replies as content blocks, whole or as a stream of events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rollout_tasks.models.base import CUT_OFF, FILTERED, REFUSED, RawToolCall
from rollout_tasks.models.gateway.client_api import ClientRequest, event
from rollout_tasks.models.gateway.engine import EngineReply
from rollout_tasks.models.gateway.json_body import BadBodyError, read_object
from rollout_tasks.models.gateway.memory import SessionMemory
from rollout_tasks.models.gateway.messages_request import INVALID, read_request

_STOP_REASONS = {CUT_OFF: "max_tokens", FILTERED: "refusal", REFUSED: "refusal"}
_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class MessagesAPI:
    """The `ClientApi`."""

    name = "messages"
    error_event = "error"

    def read(self, body: dict[str, Any], memory: SessionMemory, most: int) -> ClientRequest:
        """See `ClientApi`."""
        del most
        return read_request(body, memory)

    def live(self, client_request: ClientRequest) -> None:
        """See `ClientApi`: a reply is sent whole."""

    def reply(
        self, client_request: ClientRequest, answer: EngineReply, call_id: str, memory: SessionMemory
    ) -> dict[str, Any]:
        """See `ClientApi`."""
        del memory
        reply, usage = answer.reply, answer.reply.usage
        blocks: list[dict[str, Any]] = []
        thinking = next(iter(reply.thinking.values()), "")
        if thinking:
            blocks.append({"type": "thinking", "thinking": thinking, "signature": ""})
        if reply.text:
            blocks.append({"type": "text", "text": reply.text})
        blocks += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call)} for call in reply.tool_calls
        ]
        stopped = answer.stop if answer.stop in (client_request.request.get("stop") or []) else None
        why = _STOP_REASONS.get(reply.finish_reason) or ("tool_use" if reply.tool_calls else "end_turn")
        return {
            "id": f"msg_{call_id}",
            "type": "message",
            "role": "assistant",
            "model": reply.served_by,
            "content": blocks,
            "stop_reason": "stop_sequence" if stopped else why,
            "stop_sequence": stopped,
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": usage.completion_tokens,
            },
        }

    def events(self, reply: Mapping[str, Any], client_request: ClientRequest) -> Iterator[bytes]:
        """See `ClientApi`."""
        del client_request
        begun = {**reply, "content": [], "stop_reason": None, "stop_sequence": None}
        begun["usage"] = {**reply["usage"], "output_tokens": 0}
        events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
        for index, block in enumerate(reply["content"]):
            start, deltas = _parts_of(block)
            events.append({"type": "content_block_start", "index": index, "content_block": start})
            events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            events.append({"type": "content_block_stop", "index": index})
        ended = {"stop_reason": reply["stop_reason"], "stop_sequence": reply["stop_sequence"]}
        used = {"output_tokens": reply["usage"]["output_tokens"]}
        events += [{"type": "message_delta", "delta": ended, "usage": used}, {"type": "message_stop"}]
        for one in events:
            yield event(one, one["type"])

    def error(self, status: int, sentence: str, code: str) -> dict[str, Any]:
        """See `ClientApi`."""
        del code
        kind = _ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": sentence}}


def _input(call: RawToolCall) -> dict[str, Any]:
    """Returns a call's arguments as an object, which the API needs; those that are none, as a text in one."""
    try:
        return read_object((call.arguments or "{}").encode())
    except BadBodyError:
        return {INVALID: call.arguments}


def _parts_of(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns a block as it begins, and what is added to it."""
    match block["type"]:
        case "text":
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]


MESSAGES = MessagesAPI()
