"""The tools for MCP clients, by the official client: whole episodes, what is refused, and that nothing happens twice or is left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
import pytest

from tests.integration.service.desktop_service import DesktopService

pytest.importorskip("mcp_types", reason="the package mcp is not installed")
mcp = pytest.importorskip("mcp")
httpx2 = pytest.importorskip("httpx2")
streamable_http = pytest.importorskip("mcp.client.streamable_http")

_Made = TypeVar("_Made")


class Tools:
    """A connection of the official client."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def result(self, tool: str, /, **arguments: Any) -> Any:
        return await self.client.call_tool(tool, arguments)

    async def facts(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """What the service says, where it is no refusal."""
        result = await self.result(tool, **arguments)
        assert not result.is_error, result
        facts: dict[str, Any] = json.loads(result.content[0].text)
        return facts

    async def refused(self, tool: str, /, **arguments: Any) -> tuple[int, str]:
        result = await self.result(tool, **arguments)
        assert result.is_error, result
        assert [one.text for one in result.content] == [result.structured_content["detail"]]
        return result.structured_content["status"], result.content[0].text


def connected(
    service: DesktopService, token: str, use: Callable[[Tools], Awaitable[_Made]], mode: str = "auto"
) -> _Made:
    """What a use of one connection returns."""

    async def connect() -> _Made:
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as carrier:
            transport = streamable_http.streamable_http_client(f"{service.url}/mcp", http_client=carrier)
            async with mcp.Client(transport, mode=mode) as client:
                return await use(Tools(client))

    return asyncio.run(connect())


async def ready(tools: Tools, **arguments: Any) -> dict[str, Any]:
    """A lease whose desktop is there, and what each call on it says."""
    lease = await tools.facts("acquire", **arguments)
    while lease["state"] in ("waiting", "setting_up"):
        lease = await tools.facts("show_lease", lease_id=lease["lease_id"])
    assert lease["state"] == "ready", lease
    return lease


def named(lease: dict[str, Any]) -> dict[str, Any]:
    return {"lease_id": lease["lease_id"], "fence": lease["fence"]}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_an_item_is_played_to_its_score(service: DesktopService, token: str, alice: httpx.Client, mode: str) -> None:
    async def play(tools: Tools) -> None:
        listed = await tools.client.list_tools()
        assert [one.name for one in listed.tools][:3] == ["list_items", "acquire", "show_lease"]
        items = await tools.facts("list_items")
        assert [one["item_id"] for one in items["items"]] == ["one", "two"]
        lease = await ready(tools, item="one")
        assert [one["function"]["name"] for one in lease["tools"]] == ["work"]
        seen = await tools.result("observe", **named(lease))
        assert [one.text for one in seen.content] == ['{"turn": 0, "next_turn": 1}', "3 steps to do"]
        turn = 1
        for left in (2, 1, 0):
            step = await tools.result("act", **named(lease), turn=turn, name="work")
            facts = json.loads(step.content[0].text)
            assert (facts["status"], step.content[1].text) == ("success", f"{left} steps left")
            turn = facts["next_turn"]
        assert facts["over"] == "done"
        end = await tools.facts("evaluate", **named(lease))
        assert (end["evaluated"], end["reward"], end["turns"]) == (True, 1.0, 3)
        assert (await tools.facts("list_leases")) == {"leases": []}
        assert (await tools.facts("release", lease_id=lease["lease_id"])) == {"released": False}

    connected(service, token, play, mode)
