"""The tools as a server of the package `mcp`, which is needed to import this: one request, one reply, and nothing kept in between.

MCP's own sessions are not used: a lease has its id, its fence and its silence, which hold whatever becomes of a connection.
"""

from __future__ import annotations

import json
import logging
from importlib.metadata import version
from typing import Any

from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    ImageContent,
    ListToolsResult,
    TextContent,
    Tool,
    ToolAnnotations,
)

from rollout_tasks.service.lending.http_requests import LARGEST_BODY, problem_values
from rollout_tasks.service.lending.mcp_tools import HOLDER, McpTool, McpTools, Reply
from rollout_tasks.service.lending.refusal import Refusal
from rollout_tasks.unicode_text import one_line, storable, storable_json

logger = logging.getLogger(__name__)

_DEEPEST = 100
"""Levels of what is answered; tasks that come from outside have fewer."""


def session_manager(tools: McpTools) -> StreamableHTTPSessionManager:
    """Returns what answers requests whose scope has a `HOLDER`."""

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[described(one) for one in tools.tools.values()])

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        if params.name not in tools.tools:
            raise MCPError(INVALID_PARAMS, f"there is no tool {one_line(params.name[:100])!r}")
        try:
            return result(await tools.call(context.request.scope[HOLDER], params.name, params.arguments or {}))
        except Refusal as refusal:
            return refused(refusal)
        except Exception:  # answers for the call: a client must not hang, or be told a traceback
            logger.exception("the tool %s failed", params.name)
            return refused(Refusal(503, "the service failed to answer; its log says why"))

    logging.getLogger("mcp").setLevel(logging.WARNING)  # it tells of each request
    server = Server(
        "desktops",
        title="Desktops",
        version=version("computer-use-rollouts"),
        instructions=tools.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    # Bodies are bounded before they come here, but numbers may have grown as they were written anew.
    most = 8 * LARGEST_BODY
    return StreamableHTTPSessionManager(server, json_response=True, stateless=True, max_request_body_size=most)


def described(tool: McpTool) -> Tool:
    """Returns a tool as clients see it."""
    schema = tool.arguments.model_json_schema()
    schema.pop("description", None)  # it is for readers of the code
    annotations = ToolAnnotations(
        title=tool.title,
        read_only_hint=tool.reads,
        destructive_hint=not tool.reads,
        idempotent_hint=tool.repeatable,
    )
    return Tool(
        name=tool.name, title=tool.title, description=tool.description, input_schema=schema, annotations=annotations
    )


def result(reply: Reply) -> CallToolResult:
    """Returns a reply as content: first the facts as JSON, then each text, then each picture."""
    facts = json.dumps(storable_json(reply.facts, _DEEPEST), ensure_ascii=False)
    content: list[ContentBlock] = [TextContent(text=text) for text in (facts, *map(storable, reply.texts))]
    content += [ImageContent(data=picture, mime_type="image/png") for picture in reply.pictures]
    return CallToolResult(content=content)


def refused(refusal: Refusal) -> CallToolResult:
    """Returns a refusal as a sentence for the model, and for programs with the status that HTTP would give."""
    values = problem_values(refusal)
    sentence = storable(values["detail"])
    said = {"status": refusal.status, **values, "detail": sentence}
    return CallToolResult(content=[TextContent(text=sentence)], structured_content=said, is_error=True)
