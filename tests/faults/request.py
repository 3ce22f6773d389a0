"""A request to Redis as a proxy sees it: who sent what in one go, and what came back."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.faults import naming
from tests.faults.kinds import Kind
from tests.faults.resp import Command


@dataclass(frozen=True, slots=True)
class Sender:
    """Who a connection belongs to."""

    role: str
    pid: int


@dataclass(slots=True)
class Request:
    """What a client sent in one go: a command, a transaction or a pipeline."""

    sender: Sender
    commands: list[Command]
    name: str = ""
    kind: Kind | None = None
    """What happens to it."""
    replies: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = self.name or naming.name_of(self.commands)

    @property
    def raw(self) -> bytes:
        """As it travels."""
        return b"".join(command.raw for command in self.commands)

    @property
    def blocking(self) -> bool:
        """Whether its answer may say that nothing came."""
        return self.commands[0].name in naming.BLOCKING

    @property
    def brought_something(self) -> bool:
        """Whether a blocking request was answered with something."""
        return self.blocking and bool(self.replies) and self.replies[0][:3] not in {b"*-1", b"$-1", b"_\r\n"}
