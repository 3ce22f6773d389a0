"""What the tools for MCP clients take: each tool's arguments, of which its JSON Schema is made."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from rollout_tasks.service.lending import messages

LeaseId = Annotated[str, Field(max_length=200, description="The lease, as acquire told it.")]


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class NoArguments(_Arguments):
    """Of tools that take none."""


class ListItemsArguments(_Arguments):
    """Which part of the items is listed."""

    offset: int = Field(0, strict=True, ge=0, le=10**9, description="How many items to skip: next_offset says it.")


class AcquireArguments(messages.LeaseRequest):
    """As of `POST /leases`, but it waits."""

    wait_seconds: messages.WaitSeconds = 30.0


class ShowArguments(_Arguments):
    """Which lease is shown, and how long its desktop is waited for."""

    lease_id: LeaseId
    wait_seconds: messages.WaitSeconds = 30.0


class LeaseArguments(_Arguments):
    """Names a lease."""

    lease_id: LeaseId


class FencedArguments(LeaseArguments):
    """A call on a lease."""

    fence: messages.Fence


class ReleaseArguments(LeaseArguments):
    """Names a lease."""

    fence: messages.Fence | None = Field(None, description="May be left out; checked once the lease has one.")


class ActArguments(FencedArguments):
    """One call of one of the environment's tools. Its turn takes the place of a key: see `mcp_tools`."""

    turn: int = Field(
        strict=True,
        ge=1,
        le=10**9,
        description="The next_turn of the last reply. Sent again, the last act is answered again.",
    )
    name: str = Field(max_length=200, description="One of the lease's tools.")
    arguments: dict[str, Any] = Field(
        default_factory=dict, description="The arguments of that tool; wrong ones are a failed step."
    )


class EvaluateArguments(FencedArguments):
    """Ends the episode and asks for its score."""

    wait_seconds: messages.WaitSeconds = 30.0
