"""The contract between an agent and what it acts in. Heavy environments declare `needs_vm` and get a leased VM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from benchmark.items import Item
from rollout_tasks.config import RunConfig

if TYPE_CHECKING:
    from desktop_image.conformance.facts import Facts
    from vm_pool.states import Endpoint


@dataclass(frozen=True, slots=True)
class Tool:
    """One thing an agent may do, described for the model."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of the arguments object."""

    def as_openai(self) -> dict[str, Any]:
        """The tool as Chat Completions wants it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model asked for; arguments already parsed and valid against the tool's schema."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Observation:
    """What can be seen after a reset or an action."""

    text: str = ""
    images: tuple[bytes, ...] = ()
    """PNG files."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of a call."""

    status: Literal["success", "failed"]
    response: str
    observation: Observation | None = None
    ends_episode: Literal["done", "fail"] | None = None
    """Set when the call says the task is finished, or cannot be done."""


class VMAccess(Protocol):
    """The leased VM as an environment sees it; `vm_pool.Lease` is one."""

    @property
    def vm_id(self) -> str:
        """The VM's name in its pool."""

    @property
    def endpoint(self) -> Endpoint:
        """Where it answers, and what its gate asks for: `vm_pool.gate_client` connects.

        Its ports are ``control``, ``chromium``, ``vnc``, ``vlc``, and ``attest`` where the VM's host can tell who answers.
        """

    def check(self) -> None:
        """Raises when the lease is lost or past its deadline: call before touching the VM."""


class VMLost(Exception):
    """The VM stopped answering; raised by environments, and tried again on another VM. Says how it showed."""


class ItemUnsupported(ValueError):
    """Nothing installed here can set the item up or score it; it alone is left out, and named beside the score."""


@dataclass(frozen=True, slots=True)
class Conformance:
    """How far an item's score can be relied on in VMs of certain images."""

    item: Item
    verdict: Literal["faithful", "needs", "unfaithful"]
    reasons: tuple[str, ...] = ()
    """What it needs, or where the images differ from what it was made for; empty when it is faithful."""

    @property
    def sentence(self) -> str:
        """The item with its reasons, for people."""
        verb = "needs" if self.verdict == "needs" else "is unfaithful in these VMs:"
        return f"item {self.item.id!r}: {verb} {'; '.join(self.reasons)}"


@dataclass(frozen=True, slots=True)
class EnvironmentContext:
    """What an environment is made from, once per attempt."""

    config: RunConfig
    directory: Path
    """The attempt's own folder; recordings and other artefacts go here."""
    vm: VMAccess | None
    """None exactly when `needs_vm_for` said so."""
    attempt: int = 1
    """Which try of the rollout this is, from 1."""
    index: int = 0
    """Which of the item's rollouts this is, from 0."""


class World(Protocol):
    """What an agent acts in, once it is there. Raises plain Python errors.

    Called in order: `reset` once, `execute` any number of times, `evaluate` at most once, `close` always.
    """

    def instructions(self, item: Item) -> str:
        """What the system prompt says about this environment and how to answer."""

    def tools(self) -> list[Tool]:
        """The tools on offer, the same through the episode."""

    def reset(self, item: Item) -> Observation:
        """Brings the world to the item's start."""

    def execute(self, call: ToolCall) -> ToolResult:
        """Carries out one call. A call the world refuses is a ``failed`` result; only a broken world raises."""

    def evaluate(self) -> float | None:
        """Scores the end state in [0, 1]; None when the score comes from comparing the answer instead."""

    def close(self) -> None:
        """Gives back what the episode holds, in every case; never stops a pooled VM."""


class Environment(World, Protocol):
    """A kind of world. Constructed as ``Class(context)``, one for each attempt; inherit from it for the defaults."""

    needs_vm: ClassVar[bool]
    """Whether its attempts lease a VM."""
    needs_desktop: ClassVar[bool] = False
    """Whether those VMs must have a desktop to connect to; simulated ones have none."""
    compares_answers: ClassVar[bool] = False
    """Whether every item must have an answer that the run's metric can compare with: the environment gives no score itself."""
    queue: ClassVar[str]
    """The Celery queue of its rollouts, as in ``rollout.light``."""
    default_agent: ClassVar[str]
    """The agent's registry name used when the run does not say."""
    task_code: Literal["cell", "worker"] | None = None
    """Where code that comes with items runs: apart in a cell, or in the worker's own process; None where none comes."""
    attestation: Literal["attested", "unattested"] | None = None
    """Once evaluated: whether the VM's server is known to be its own; None where the score does not rest on that."""

    def __init__(self, context: EnvironmentContext) -> None:
        """Made within the attempt's deadline; what takes long belongs into `reset`."""

    @classmethod
    def needs_vm_for(cls, config: RunConfig, item: Item) -> bool:  # noqa: ARG003
        """Whether an attempt at this item leases a VM, for environments where that differs."""
        return cls.needs_vm

    @classmethod
    def check_item(cls, config: RunConfig, item: Item) -> None:
        """Looks at an item before anything is enqueued.

        Raises:
            ItemUnsupported: It cannot be set up or scored here, in one sentence.
            ValueError: It is wrong, in one sentence.
        """

    @classmethod
    def needs(cls, config: RunConfig, items: Iterable[Item]) -> Mapping[str, Any]:  # noqa: ARG003
        """What the items need besides this project, for people: said by a dry run. JSON values by kind of need."""
        return {}

    @classmethod
    def unmet(cls, config: RunConfig, items: Sequence[Item]) -> list[str]:  # noqa: ARG003
        """What the items ask for and a run with this configuration does not give them: sentences, said at submission."""
        return []

    @classmethod
    def conformance(cls, config: RunConfig, items: Sequence[Item], images: Sequence[Facts]) -> Sequence[Conformance]:  # noqa: ARG003
        """How far the items' scores can be relied on, where that depends on the VMs.

        Args:
            config: The run's.
            items: Those that run in this environment.
            images: What is known of each image that their VMs may be made from; at least one.
        """
        return ()

    @classmethod
    def snapshot(cls, item: Item) -> str | None:  # noqa: ARG003
        """The snapshot that the item's VM starts from in place of the run's, where VMs have some to choose from."""
        return None

    @classmethod
    def prepare(cls, config: RunConfig, item: Item) -> None:
        """What takes long and needs no VM, as downloads do: done before the attempt asks for one."""

    @classmethod
    def preload(cls) -> None:
        """Imports what episodes use; called once in a worker that serves the environment, before it forks."""

    @classmethod
    def check_available(cls) -> None:
        """Raises `RuntimeError` with one sentence when this machine cannot serve the environment."""
