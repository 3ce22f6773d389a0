"""What clients of leases send and get: the bodies of requests and replies, each field with its meaning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

LARGEST_FENCE = 2**63 - 1
LONGEST_WAIT = 60.0
"""Seconds that one request may wait at the server: proxies close those that take longer."""

Fence = Annotated[
    int,
    Field(
        strict=True, ge=0, le=LARGEST_FENCE, description="The lease's number, as it is shown once there is a desktop."
    ),
]
Key = Annotated[
    str,
    Field(
        pattern=r"^[!-~]{1,100}$",
        description="Names the call, so that it happens once. A new one for each; of acts, the last is answered again.",
    ),
]
WaitSeconds = Annotated[
    float,
    Field(
        strict=True, ge=0, le=LONGEST_WAIT, description="How long the reply may take; half the TTL at most is waited."
    ),
]


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class LeaseRequest(_Sent):
    """Asks for a desktop: with an item of the service's benchmark, with a task of one's own, or bare."""

    item: str | None = Field(None, max_length=1000, description="The id of one of the service's items.")
    task: dict[str, Any] | None = Field(
        None, description="A task in place of an item: an OSWorld task file's JSON, or an item as in JSONL."
    )
    index: int = Field(
        0, strict=True, ge=0, le=1_000_000, description="Which of the item's rollouts it is, where they differ."
    )
    key: Key | None = Field(None, description="Names the request: sent again, it finds the lease that it began.")
    wait_seconds: WaitSeconds = 0.0


class FencedRequest(_Sent):
    """A call on a lease."""

    fence: Fence


class ActRequest(FencedRequest):
    """One call of one of the environment's tools, as a model writes it."""

    key: Key
    name: str = Field(max_length=200, description="The tool; the lease lists them.")
    arguments: dict[str, Any] = Field(
        default_factory=dict, description="Its arguments; wrong ones are a failed step, as for an agent."
    )


class EvaluateRequest(FencedRequest):
    """Ends the episode and asks for its score."""

    wait_seconds: WaitSeconds = 30.0


class ViewRequest(FencedRequest):
    """Asks for an address where a person sees the desktop."""

    help: bool = Field(
        False,
        strict=True,
        description="Whether the person may use keyboard, pointer and clipboard, too; the operator decides.",
    )


class TicketRequest(_Sent):
    """Hands the ticket of a view in."""

    ticket: str = Field(max_length=100)


class SocketCall(_Sent):
    """One message to the WebSocket; which fields it has depends on the call."""

    call: Literal["renew", "observe", "act", "evaluate"]
    id: int | str | None = Field(None, description="Comes back with the reply.")
    fence: Fence
    key: Key | None = None
    name: str | None = Field(None, max_length=200)
    arguments: dict[str, Any] | None = None
    wait_seconds: WaitSeconds | None = None


class End(BaseModel):
    """How a lease ended."""

    score: float | None = Field(description="In [0, 1]; null without an evaluation.")
    reward: float | None = Field(
        description="The score; 0 where the agent failed; null where the infrastructure did, which says nothing about the agent."
    )
    ending: str | None = Field(description="How the episode ended: done, fail or max_turns.")
    turns: int
    failure_class: str | None = Field(description="Why it failed, if it did.")
    error: str
    stages: dict[str, float] = Field(description="Seconds by stage.")
    helped: bool = Field(
        description="Whether a person used the desktop, too, in a view: then the score is not the agent's alone."
    )


class Lease(BaseModel):
    """A lease as it stands."""

    lease_id: str
    state: Literal["waiting", "setting_up", "ready", "over", "ended"] = Field(
        description="waiting for a desktop; setting_up the item; ready for acts; over: only an evaluation is left; ended."
    )
    fence: int | None = Field(description="Each call says it; null while the lease waits.")
    vm_id: str | None
    item_id: str | None = Field(description="null for a bare desktop.")
    index: int
    question: str = Field(description="The task.")
    instructions: str = Field(description="Once ready: what a system prompt says about the environment.")
    tools: list[dict[str, Any]] = Field(description="Once ready: the tools, in the format of Chat Completions.")
    turns: int
    max_turns: int
    place: int | None = Field(description="While it waits: its place in the pool's queue, from 1, if that is known.")
    waiting: int | None = Field(description="While it waits: how many wait for the pool.")
    ttl_seconds: float = Field(description="The lease ends when its client is silent for so long.")
    helped: bool = Field(description="Whether a person used the desktop, too, in a view.")
    end: End | None = Field(description="How it ended; null while it goes on.")


class ViewAddress(BaseModel):
    """Where a person sees the desktop."""

    path: str = Field(
        description="What follows the service's address, with a ticket: it is opened once, by whoever has it, in a browser."
    )
    help: bool
    ticket_seconds: float = Field(description="How long it can be opened.")
    view_seconds: float = Field(description="When the view ends at the latest; it ends with the lease, too.")


class ViewState(BaseModel):
    """What the page of a view shows besides the desktop."""

    lease_id: str
    question: str
    help: bool


class Observed(BaseModel):
    """What can be seen."""

    text: str = Field(description="What can be read, such as the accessibility tree.")
    screenshots: list[str] = Field(description="PNG files in base64; desktops show one.")
    turn: int = Field(description="How many acts came before.")


class Step(BaseModel):
    """What became of an act."""

    status: Literal["success", "failed"]
    response: str = Field(description="What the tool answered.")
    observation: Observed | None = Field(description="null if the act showed nothing new, as one that was refused.")
    turn: int = Field(description="Which act of the lease it was, from 1.")
    over: str | None = Field(
        description="How the episode ended with it: done, fail or max_turns; null while it goes on."
    )
    desktop_seconds: float = Field(description="How long the desktop took.")


class LeaseList(BaseModel):
    """The leases of a token that go on; an operator's: everybody's."""

    leases: list[Lease]


class RecordFile(BaseModel):
    """One file of a record."""

    name: str
    bytes: int


class Record(BaseModel):
    """The record of a lease's episode."""

    lease_id: str
    files: list[RecordFile] = Field(description="Each is at record/NAME below the lease.")
    folder: str = Field(description="Where they are on the service's machine.")


class Released(BaseModel):
    """Says that a lease is over."""

    released: bool = Field(description="Whether it went on until now.")


class ItemSummary(BaseModel):
    """One item of the service's benchmark."""

    item_id: str
    question: str


class ItemList(BaseModel):
    """The items that leases may play."""

    items: list[ItemSummary]


class Health(BaseModel):
    """Says that the service answers."""

    status: Literal["ok"]


class Problem(BaseModel):
    """Why a call was not answered as it was meant."""

    detail: str = Field(description="One sentence.")
    failure_class: str | None = Field(None, description="Why a lease ended, where that is known.")
