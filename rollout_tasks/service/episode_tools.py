"""The tools of an OpenEnv episode for clients that speak MCP: what OpenEnv's server asks of an environment's `mcp_client`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, Self


class Shown(Protocol):
    """What a step showed."""

    response: str
    status: str
    text: str
    screenshots: list[str]
    done: bool
    reward: Any


class EpisodeTools:
    """Lists and calls the tools of an episode; needs no connection of its own."""

    def __init__(
        self,
        tools: Callable[[], Sequence[Mapping[str, Any]]],
        step: Callable[[str, Mapping[str, Any]], Awaitable[Shown]],
    ) -> None:
        """Calls nothing yet.

        Args:
            tools: Returns the tools in the format of Chat Completions.
            step: Calls one of them by name.
        """
        self._tools = tools
        self._step = step

    def is_connected(self) -> bool:
        """Always: the tools are in this process."""
        return True

    async def list_tools(self) -> list[dict[str, Any]]:
        """Returns the tools in MCP's format."""
        functions = [tool["function"] for tool in self._tools()]
        return [
            {"name": one["name"], "description": one["description"], "inputSchema": one["parameters"]}
            for one in functions
        ]

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Takes one step; returns what it showed in MCP's format, and beside that whether the episode is over, and its reward."""
        shown = await self._step(name, arguments)
        texts = [{"type": "text", "text": text} for text in (shown.response, shown.text) if text]
        images = [{"type": "image", "data": data, "mimeType": "image/png"} for data in shown.screenshots]
        return {
            "content": [*texts, *images],
            "isError": shown.status == "failed",
            "structuredContent": {"done": shown.done, "reward": shown.reward},
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Has nothing to close."""
