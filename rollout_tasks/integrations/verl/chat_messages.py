"""Messages as agents send them, and as chat templates of Hugging Face's tokenizers take them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rollout_tasks.errors import FailureClass, RolloutFailure


def template_messages(messages: Sequence[Mapping[str, Any]], *, with_pictures: bool) -> list[dict[str, Any]]:
    """Returns messages for a chat template: pictures as ``{"type": "image", "image": URL}``, arguments of calls as objects.

    Args:
        messages: Those of a Chat Completions request.
        with_pictures: Whether the template takes parts; otherwise the parts of a text are joined.

    Raises:
        RolloutFailure: There is a picture where the model sees none, or a part of another kind; its class is ``model``.
    """
    return [_template_message(message, with_pictures=with_pictures) for message in messages]


def _template_message(message: Mapping[str, Any], *, with_pictures: bool) -> dict[str, Any]:
    content = message.get("content")
    made = {**message, "content": "" if content is None else content}
    if isinstance(content, list):
        parts = [_template_part(part, with_pictures=with_pictures) for part in content]
        made["content"] = parts if with_pictures else "\n".join(part["text"] for part in parts)
    if calls := message.get("tool_calls"):
        made["tool_calls"] = [_template_call(call) for call in calls]
    return {name: value for name, value in made.items() if value is not None}


def _template_part(part: Any, *, with_pictures: bool) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind != "image_url":
        raise RolloutFailure(
            FailureClass.MODEL, f"a message has a part of the kind {str(kind)[:50]}: verl takes text and pictures"
        )
    if not with_pictures:
        raise RolloutFailure(
            FailureClass.MODEL, "a message has a picture, and verl's model has no processor for pictures"
        )
    link = part["image_url"]
    return {"type": "image", "image": link["url"] if isinstance(link, dict) else link}


def _template_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):  # templates write a text as a text in quotation marks
        function["arguments"] = arguments
    return {**call, "function": function}
