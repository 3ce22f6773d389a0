"""Chat Completions: requests pass as they are, replies have what the engine said and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rollout_tasks.models.base import THINKING_FIELDS
from rollout_tasks.models.gateway.client_api import ClientRequest, event, flag, mapping, objects, openai_error
from rollout_tasks.models.gateway.engine import EngineReply
from rollout_tasks.models.gateway.memory import SessionMemory
from rollout_tasks.models.gateway.refused import Refused, inexpressible

_DELTA_FIELDS = ("role", "content", "refusal", "tool_calls", *THINKING_FIELDS)
_END = "[DONE]"


class ChatCompletions:
    """The `ClientApi`."""

    name = "chat"
    error_event = ""

    def read(self, body: dict[str, Any], memory: SessionMemory, most: int) -> ClientRequest:
        """See `ClientApi`."""
        del memory, most
        messages = objects(body.get("messages"), "messages")
        if not messages or not all(isinstance(message.get("role"), str) for message in messages):
            raise Refused(400, "messages must be a list of at least one message, each with a role")
        for message in messages:
            _check_pictures(message.get("content"))
        if body.get("n") not in (None, 1):
            raise Refused(400, "n must be 1: each sampled reply is a call of its own here", "unsupported_parameter")
        if body.get("functions") is not None or body.get("function_call") is not None:
            raise inexpressible("functions, which tools have replaced,")
        for tool in objects(body.get("tools") or [], "tools"):
            mapping(tool.get(str(tool.get("type"))), "the tool's own part")
        options = mapping(body.get("stream_options") or {}, "stream_options")
        flag(options, "include_usage")
        request = {name: value for name, value in body.items() if name not in {"stream", "stream_options", "n"}}
        return ClientRequest(request, flag(body, "stream"), body)

    def live(self, client_request: ClientRequest) -> _Chunks | None:
        """See `ClientApi`."""
        return _Chunks(client_request) if client_request.stream else None

    def reply(
        self, client_request: ClientRequest, answer: EngineReply, call_id: str, memory: SessionMemory
    ) -> dict[str, Any]:
        """See `ClientApi`."""
        del memory
        reply, usage = answer.reply, answer.reply.usage
        message = {"content": None, "refusal": None, **reply.message, **reply.thinking}
        ending = reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")
        if reply.refused:
            message |= {"content": None, "refusal": reply.text}
            ending = "stop"
        choice: dict[str, Any] = {
            "index": 0,
            "message": message,
            "logprobs": answer.logprobs if client_request.body.get("logprobs") else None,
            "finish_reason": ending,
        }
        if client_request.body.get("return_token_ids"):
            choice["token_ids"] = list(answer.sampled.output_ids)
        body = {
            "id": f"chatcmpl-{call_id}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": reply.served_by,
            "choices": [choice],
            "usage": _usage(usage.prompt_tokens, usage.completion_tokens),
        }
        if client_request.body.get("return_token_ids"):
            body["prompt_token_ids"] = list(answer.sampled.prompt_ids)
        return body

    def events(self, reply: Mapping[str, Any], client_request: ClientRequest) -> Iterator[bytes]:
        """See `ClientApi`."""
        choice = reply["choices"][0]
        head = {**reply, "object": "chat.completion.chunk"}
        del head["usage"]
        delta = {name: value for name, value in choice["message"].items() if value is not None}
        if calls := delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": place, **call} for place, call in enumerate(calls)]
        said = {name: value for name, value in choice.items() if name != "message"}
        yield event({**head, "choices": [{**said, "delta": delta, "finish_reason": None}]})
        head.pop("prompt_token_ids", None)
        ended = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": choice["finish_reason"]}
        yield event({**head, "choices": [ended]})
        if _usage_wanted(client_request):
            yield event({**head, "choices": [], "usage": reply["usage"]})
        yield event(_END)

    def error(self, status: int, sentence: str, code: str) -> dict[str, Any]:
        """See `ClientApi`."""
        return openai_error(status, sentence, code)


class _Chunks:
    """A reply that is passed on as it is sampled."""

    def __init__(self, client_request: ClientRequest) -> None:
        self._request = client_request
        self._head: dict[str, Any] = {}

    def events(self, piece: Mapping[str, Any]) -> Iterable[bytes]:
        """See `Live`."""
        if not self._head:
            self._head = {
                "id": str(piece.get("id") or "chatcmpl")[:200],
                "object": "chat.completion.chunk",
                "created": int(time.time()),
                "model": str(piece.get("model") or "")[:200],
            }
        wanted = self._request.body
        head = self._head
        if wanted.get("return_token_ids") and "prompt_token_ids" in piece:
            head = {**head, "prompt_token_ids": piece["prompt_token_ids"]}
        for choice in piece["choices"]:
            if choice.get("index") not in (None, 0):
                continue
            delta = choice.get("delta") if isinstance(choice.get("delta"), dict) else {}
            shown = {
                "index": 0,
                "delta": {name: delta[name] for name in _DELTA_FIELDS if name in delta},
                "logprobs": choice.get("logprobs") if wanted.get("logprobs") else None,
                "finish_reason": choice.get("finish_reason"),
            }
            if wanted.get("return_token_ids") and "token_ids" in choice:
                shown["token_ids"] = choice["token_ids"]
            yield event({**head, "choices": [shown]})

    def end(self, answer: EngineReply) -> bytes:
        """See `Live`."""
        usage = answer.reply.usage
        counted = _usage(usage.prompt_tokens, usage.completion_tokens)
        last = event({**self._head, "choices": [], "usage": counted}) if _usage_wanted(self._request) else b""
        return last + event(_END)


def _check_pictures(content: Any) -> None:
    """Refuses pictures that are given by something else than an address, which records could not tell from their own names."""
    for part in content if isinstance(content, list) else ():
        link = part.get("image_url") if isinstance(part, dict) else None
        url = link.get("url") if isinstance(link, dict) else link
        if link is not None and not isinstance(url, str):
            raise Refused(400, "image_url must be an address, or an object with one as its url")


def _usage_wanted(client_request: ClientRequest) -> bool:
    return bool((client_request.body.get("stream_options") or {}).get("include_usage"))


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


CHAT = ChatCompletions()
