"""What MCP clients get: the tools' schemas, and replies as content."""

from __future__ import annotations

import base64
import re

import pytest

from rollout_tasks.errors import FailureClass
from rollout_tasks.service.lending.mcp_arguments import ActArguments
from rollout_tasks.service.lending.mcp_tools import Reply, act_key
from rollout_tasks.service.lending.refusal import Refusal

pytest.importorskip("mcp_types", reason="the package mcp is not installed")
from rollout_tasks.service.lending.mcp_server import described, refused, result
from rollout_tasks.service.lending.mcp_tools import McpTools

PICTURE = base64.b64encode(b"\x89PNG").decode()


def test_facts_come_first_then_texts_then_pictures() -> None:
    content = result(
        Reply({"turn": 1, "question": "你好 \ud83d"}, ("{not json", "x\0\ud800"), (PICTURE, PICTURE))
    ).content
    assert [one.type for one in content] == ["text", "text", "text", "image", "image"]
    assert content[0].text == '{"turn": 1, "question": "你好 �"}'
    assert [one.text for one in content[1:3]] == ["{not json", "x��"]
    assert (content[3].data, content[3].mime_type) == (PICTURE, "image/png")


def test_a_refusal_is_one_bounded_line_with_its_status() -> None:
    shown = refused(Refusal(410, "the lease\nis over: \ud800" + "x" * 5_000, FailureClass.LEASE_LOST))
    assert shown.is_error
    assert shown.structured_content["status"] == 410
    assert shown.structured_content["failure_class"] == "lease_lost"
    text = shown.content[0].text
    assert (text[:20], len(text) <= 2_000, "\n" in text) == ("the lease is over: �", True, False)
    shown.model_dump_json()


def test_schemas_are_plain_objects_that_every_model_takes() -> None:
    tools = [described(one) for one in McpTools(None).tools.values()]
    for tool in tools:
        assert re.fullmatch(r"[a-z_]{1,40}", tool.name)
        assert tool.input_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        assert "$ref" not in str(tool.input_schema)
        assert all("description" in one for one in tool.input_schema["properties"].values()), tool.name
    required = {tool.name: tool.input_schema.get("required", []) for tool in tools}
    assert required["act"] == ["lease_id", "fence", "turn", "name"]
    assert required["acquire"] == []


def act(turn: int, **arguments: object) -> str:
    return act_key(ActArguments(lease_id="x", fence=1, turn=turn, name="click", arguments=arguments))


def test_an_act_has_the_key_of_its_turn_and_of_what_it_does() -> None:
    assert act(1, x=1, y=2) == act(1, y=2, x=1)
    assert len({act(1, x=1), act(2, x=1), act(1, x=2), act(1, x="1"), act(1)}) == 5
    assert re.fullmatch(r"[!-~]{1,100}", act(10**9))
