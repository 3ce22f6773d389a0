"""Message texts: system prompt, first message, tool results, and answers to unusable replies."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from rollout_tasks.environments.base import Observation, Tool, ToolResult
from rollout_tasks.models.base import STATE_HEADING
from rollout_tasks.trajectories.data_urls import data_url

SYSTEM = """\
You are an assistant that solves tasks by calling tools.

{instructions}

Tools:
{tools}

Call tools until the task is solved, then give your final answer as text, without a tool call."""

_PLACES = re.compile(r"\{instructions\}|\{tools\}")
ON_EMPTY_REPLY = "Your reply was empty. Call a tool, or give your final answer as text."
CUT_OFF_NOTE = (
    "Your reply was cut off at its token limit: go on more briefly, with a tool call or your final answer as text."
)
FILTERED_NOTE = (
    "Your reply was stopped by a content filter: go on in other words, with a tool call or your final answer as text."
)
NOT_EXECUTED = "Not executed: an earlier call of this turn ended the episode."

Content = str | list[dict[str, Any]]
"""Plain text if there is no picture: every endpoint accepts that."""


def system_prompt(instructions: str, tools: Sequence[Tool], template: str | None = None) -> str:
    """Returns the system prompt.

    Args:
        instructions: The environment's instructions.
        tools: The environment's tools.
        template: Replaces `SYSTEM`.
    """
    described = "\n".join(f"- {tool.name}: {tool.description}" for tool in tools)
    parts = {"{instructions}": instructions.strip(), "{tools}": described}
    # In one pass, not by str.format: the user's template and the instructions may contain other braces.
    return _PLACES.sub(lambda place: parts[place[0]], SYSTEM if template is None else template)


def task_content(question: str, observation: Observation) -> Content:
    """Returns the first user message: the question and the observation."""
    text = f"{question}\n\n{STATE_HEADING}\n{observation.text}" if observation.text else question
    return _with_pictures(text, observation.images)


def result_content(result: ToolResult, *, with_pictures: bool) -> Content:
    """Returns a tool message: status and response as JSON, then the observation."""
    text = json.dumps({"status": result.status, "response": result.response}, ensure_ascii=False)
    seen = result.observation or Observation()
    if seen.text:
        text = f"{text}\n\n{STATE_HEADING}\n{seen.text}"
    return _with_pictures(text, seen.images if with_pictures else ())


def pictures_content(shown: Sequence[tuple[str, ToolResult]]) -> Content:
    """Returns the user message with a turn's pictures, each below its tool's name; empty without pictures."""
    parts: list[dict[str, Any]] = []
    for name, result in shown:
        if result.observation is not None and result.observation.images:
            parts.append({"type": "text", "text": f"Screenshot after {name}:"})
            parts += map(_picture, result.observation.images)
    return parts


def _with_pictures(text: str, images: Sequence[bytes]) -> Content:
    return [{"type": "text", "text": text}, *map(_picture, images)] if images else text


def _picture(image: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(image, "png"), "detail": "high"}}
