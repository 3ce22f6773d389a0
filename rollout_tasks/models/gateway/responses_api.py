"""OpenAI's Responses API: replies as output items, whole or as a stream of events."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from rollout_tasks.models.base import CUT_OFF, FILTERED, RawToolCall
from rollout_tasks.models.gateway.client_api import ClientRequest, event, openai_error
from rollout_tasks.models.gateway.computer_tools import NAME, openai_actions
from rollout_tasks.models.gateway.engine import EngineReply
from rollout_tasks.models.gateway.memory import Conversation, SessionMemory
from rollout_tasks.models.gateway.responses_request import read_request

_REPEATED: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": False,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
"""The fields of a request that its response repeats, with their values where the request has none."""
_TEXT_OF = {"output_text": "text", "refusal": "refusal"}
"""The field of a message's part that has its text."""
_INCOMPLETE = {CUT_OFF: "max_output_tokens", FILTERED: "content_filter"}


class ResponsesAPI:
    """The `ClientApi`."""

    name = "responses"
    error_event = "error"

    def read(self, body: dict[str, Any], memory: SessionMemory, most: int) -> ClientRequest:
        """See `ClientApi`."""
        return read_request(body, memory, most)

    def live(self, client_request: ClientRequest) -> None:
        """See `ClientApi`: a reply is sent whole."""

    def reply(
        self, client_request: ClientRequest, answer: EngineReply, call_id: str, memory: SessionMemory
    ) -> dict[str, Any]:
        """See `ClientApi`."""
        reply, usage = answer.reply, answer.reply.usage
        said = {**reply.message, **reply.thinking}
        size = client_request.size + len(reply.text) + sum(len(call.arguments) for call in reply.tool_calls)
        response_id = f"resp_{call_id}"
        if client_request.body.get("store") is not False:
            memory.conversations.keep(response_id, Conversation((*client_request.notes["messages"], said), size))
        why = _INCOMPLETE.get(reply.finish_reason)
        repeated = {
            name: default if client_request.body.get(name) is None else client_request.body[name]
            for name, default in _REPEATED.items()
        }
        return {
            "id": response_id,
            "object": "response",
            "created_at": int(time.time()),
            "status": "incomplete" if why else "completed",
            "error": None,
            "incomplete_details": {"reason": why} if why else None,
            "model": reply.served_by,
            "output": _output(client_request, answer, call_id),
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.total_tokens,
            },
            **repeated,
        }

    def events(self, reply: Mapping[str, Any], client_request: ClientRequest) -> Iterator[bytes]:
        """See `ClientApi`."""
        del client_request
        begun = {**reply, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
        ]
        for place, item in enumerate(reply["output"]):
            events += _item_events(place, item)
        events.append({"type": f"response.{reply['status']}", "response": reply})
        for number, one in enumerate(events):
            yield event({**one, "sequence_number": number}, one["type"])

    def error(self, status: int, sentence: str, code: str) -> dict[str, Any]:
        """See `ClientApi`."""
        return openai_error(status, sentence, code)


def _output(client_request: ClientRequest, answer: EngineReply, call_id: str) -> list[dict[str, Any]]:
    reply = answer.reply
    items: list[dict[str, Any]] = []
    thinking = next(iter(reply.thinking.values()), "")
    if thinking:
        reasoning = client_request.body.get("reasoning") or {}
        summarised = reasoning.get("summary") or reasoning.get("generate_summary")
        summary = [{"type": "summary_text", "text": thinking}] if summarised else []
        content = [] if summarised else [{"type": "reasoning_text", "text": thinking}]
        items.append({"type": "reasoning", "id": f"rs_{call_id}", "summary": summary, "content": content})
    if reply.text or not reply.tool_calls:
        part: dict[str, Any] = {"type": "output_text", "text": reply.text, "annotations": []}
        if reply.refused:
            part = {"type": "refusal", "refusal": reply.text}
        elif client_request.request.get("logprobs") and answer.logprobs is not None:
            part["logprobs"] = answer.logprobs.get("content") or []
        status = "incomplete" if reply.finish_reason in _INCOMPLETE else "completed"
        items.append(
            {"type": "message", "id": f"msg_{call_id}", "role": "assistant", "status": status, "content": [part]}
        )
    items += [_call_item(client_request, call, f"{call_id}_{place}") for place, call in enumerate(reply.tool_calls)]
    return items


def _call_item(client_request: ClientRequest, call: RawToolCall, name: str) -> dict[str, Any]:
    computer = next(iter(client_request.computers), None)
    # A call whose arguments are no action stays a function's call: the agent sees what the model wrote.
    acted = openai_actions(computer, call.arguments) if computer and call.name == NAME else None
    common = {"call_id": call.id, "status": "completed"}
    if acted is not None:
        return {"type": "computer_call", "id": f"cu_{name}", **common, "pending_safety_checks": [], **acted}
    return {"type": "function_call", "id": f"fc_{name}", **common, "name": call.name, "arguments": call.arguments}


def _item_events(place: int, item: Mapping[str, Any]) -> list[dict[str, Any]]:
    where = {"output_index": place, "item_id": item["id"]}
    added = {**item, "status": "in_progress"}
    middle: list[dict[str, Any]] = []
    if item["type"] == "message":
        added["content"] = []
        part = item["content"][0]
        at = {**where, "content_index": 0}
        middle = [
            {"type": "response.content_part.added", **at, "part": {**part, _TEXT_OF[part["type"]]: ""}},
            *_part_events(at, part),
            {"type": "response.content_part.done", **at, "part": part},
        ]
    elif item["type"] == "function_call":
        added["arguments"] = ""
        middle = [
            {"type": "response.function_call_arguments.delta", **where, "delta": item["arguments"]},
            {
                "type": "response.function_call_arguments.done",
                **where,
                "name": item["name"],
                "arguments": item["arguments"],
            },
        ]
    elif item["type"] == "reasoning":
        added |= {"summary": [], "content": []}
        middle = _reasoning_events(where, item)
    return [
        {"type": "response.output_item.added", "output_index": place, "item": added},
        *middle,
        {"type": "response.output_item.done", "output_index": place, "item": item},
    ]


def _part_events(at: Mapping[str, Any], part: Mapping[str, Any]) -> list[dict[str, Any]]:
    kind, text = part["type"], part[_TEXT_OF[part["type"]]]
    more = {"logprobs": part.get("logprobs", [])} if kind == "output_text" else {}
    return [
        {"type": f"response.{kind}.delta", **at, "delta": text, **more},
        {"type": f"response.{kind}.done", **at, _TEXT_OF[kind]: text, **more},
    ]


def _reasoning_events(where: Mapping[str, Any], item: Mapping[str, Any]) -> list[dict[str, Any]]:
    if item["content"]:
        at, said = {**where, "content_index": 0}, item["content"][0]["text"]
        return [
            {"type": "response.reasoning_text.delta", **at, "delta": said},
            {"type": "response.reasoning_text.done", **at, "text": said},
        ]
    at, part = {**where, "summary_index": 0}, item["summary"][0]
    return [
        {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}},
        {"type": "response.reasoning_summary_text.delta", **at, "delta": part["text"]},
        {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]},
        {"type": "response.reasoning_summary_part.done", **at, "part": part},
    ]


RESPONSES = ResponsesAPI()
