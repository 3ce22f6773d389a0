"""The contract between agents and environments. Heavy environments declare `needs_vm` and get a leased VM."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
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
        """Returns the tool in the Chat Completions format."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model asked for; the arguments are parsed and match the tool's schema."""

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
    """The result of a call."""

    status: Literal["success", "failed"]
    response: str
    observation: Observation | None = None
    ends_episode: Literal["done", "fail"] | None = None
    """Set if the call says that the task is finished, or cannot be done."""


class VMAccess(Protocol):
    """The leased VM as an environment sees it; `vm_pool.Lease` is one."""

    @property
    def vm_id(self) -> str:
        """The VM's name in its pool."""

    @property
    def endpoint(self) -> Endpoint:
        """Its address and the token for its gate; `vm_pool.gate_client` connects.

        Its ports are ``control``, ``chromium``, ``vnc``, ``vlc``, and ``attest`` if the VM's host can tell which server answers.
        """

    def check(self) -> None:
        """Raises if the lease is lost or past its deadline: call it before touching the VM."""


class VMLost(Exception):
    """The VM stopped answering; the message says how that was noticed. The rollout is retried with another lease."""


class ItemUnsupported(ValueError):
    """Nothing installed here can set up or score the item; only this item is left out, and the report lists it."""


@dataclass(frozen=True, slots=True)
class Conformance:
    """How far an item's score can be relied on in VMs of certain images."""

    item: Item
    verdict: Literal["faithful", "needs", "unfaithful"]
    reasons: tuple[str, ...] = ()
    """What it needs, or where the images differ from what it was made for; empty when it is faithful."""

    @property
    def sentence(self) -> str:
        """The item with its reasons, for people to read."""
        verb = "needs" if self.verdict == "needs" else "is unfaithful in these VMs:"
        return f"item {self.item.id!r}: {verb} {'; '.join(self.reasons)}"


class TextTooLong(Exception):
    """A text is longer than the model can take."""


class TextModel(Protocol):
    """The run's model as an environment asks it, in a session of its own; its cost counts as the attempt's."""

    def answer(self, instruction: str, text: str) -> str:
        """Returns what the model replies, without its thinking; may be empty.

        Args:
            instruction: The system message.
            text: The user message.

        Raises:
            TextTooLong: It is longer than the model can take.
            RolloutFailure: The model gives no reply.
        """


@dataclass(frozen=True, slots=True)
class EnvironmentContext:
    """What an environment is made from, once per attempt."""

    config: RunConfig
    directory: Path
    """The attempt's own folder; recordings and other artefacts go here."""
    vm: VMAccess | None
    """None exactly when `needs_vm_for` returned False."""
    attempt: int = 1
    """Which attempt of the rollout this is, from 1."""
    index: int = 0
    """Which of the item's rollouts this is, from 0."""
    model: TextModel | None = None
    """For environments that declare `asks_model`; None where nobody has a model for them, as in a service of desktops."""


class World(Protocol):
    """An environment in use. Raises plain Python errors.

    Called in order: `reset` once, `execute` any number of times, `evaluate` at most once, `close` always.
    Whoever inherits from it defines its abstract methods; `evaluate` and `close` have defaults.
    """

    @abstractmethod
    def instructions(self, item: Item) -> str:
        """Returns what the system prompt says about this environment and how to answer."""

    @abstractmethod
    def tools(self) -> list[Tool]:
        """Returns the tools, the same throughout the episode."""

    @abstractmethod
    def reset(self, item: Item) -> Observation:
        """Brings the environment to the item's start."""

    @abstractmethod
    def execute(self, call: ToolCall) -> ToolResult:
        """Executes one call. A refused call is a ``failed`` result; only a broken environment raises."""

    def evaluate(self) -> float | None:
        """Scores the end state in [0, 1]; None when the score comes from comparing the answer instead."""
        return None

    def close(self) -> None:
        """Releases what the episode holds, in every case; never stops a pooled VM."""


class Environment(World, Protocol):
    """A kind of environment. Constructed as ``Class(context)``, one per attempt; inherit from it for the defaults."""

    needs_vm: ClassVar[bool]
    """Whether its attempts lease a VM."""
    needs_desktop: ClassVar[bool] = False
    """Whether those VMs must have a desktop to connect to; simulated ones have none."""
    compares_answers: ClassVar[bool] = False
    """Whether every item must have an answer for the run's metric to compare with: the environment gives no score itself."""
    scores_unfinished: ClassVar[bool] = False
    """Whether an episode whose turns or tokens are used up is evaluated: what it left counts, whoever said that it was done."""
    asks_model: ClassVar[bool] = False
    """Whether it asks the run's model itself (`EnvironmentContext.model`)."""
    queue: ClassVar[str]
    """The Celery queue of its rollouts, as in ``rollout.light``."""
    default_agent: ClassVar[str]
    """The agent's registry name used when the run does not say."""
    task_code: Literal["cell", "worker"] | None = None
    """Where code that comes with items runs: isolated in a cell, or in the worker's process; None if items have no code."""
    attestation: Literal["attested", "unattested"] | None = None
    """After evaluation: whether the VM's server is known to be its own; None if the score does not depend on that."""

    def __init__(self, context: EnvironmentContext) -> None:
        """Runs within the attempt's deadline; slow work belongs in `reset`."""

    @classmethod
    def needs_vm_for(cls, config: RunConfig, item: Item) -> bool:  # noqa: ARG003
        """Returns whether an attempt at this item leases a VM, for environments where that differs."""
        return cls.needs_vm

    @classmethod
    def check_item(cls, config: RunConfig, item: Item) -> None:
        """Checks an item before anything is enqueued.

        Raises:
            ItemUnsupported: The item cannot be set up or scored here; one sentence says why.
            ValueError: The item is wrong; one sentence says why.
        """

    @classmethod
    def check_run(cls, config: RunConfig, say: Callable[[str], None]) -> None:
        """Checks, and makes, what all items of a run share, before anything is enqueued; may take long.

        Args:
            config: The run's options.
            say: Takes a sentence for whoever waits, now and then.

        Raises:
            ValueError: An option is wrong, or what it names; one sentence says why.
        """

    @classmethod
    def needs(cls, config: RunConfig, items: Iterable[Item]) -> Mapping[str, Any]:  # noqa: ARG003
        """Returns what the items need besides this project, for a dry run to show: JSON values by kind of need."""
        return {}

    @classmethod
    def unmet(cls, config: RunConfig, items: Sequence[Item]) -> list[str]:  # noqa: ARG003
        """Returns what the items ask for but this configuration does not provide: sentences, shown at submission."""
        return []

    @classmethod
    def conformance(cls, config: RunConfig, items: Sequence[Item], images: Sequence[Facts]) -> Sequence[Conformance]:  # noqa: ARG003
        """Returns how far the items' scores can be relied on, if that depends on the VMs.

        Args:
            config: The run's options.
            items: The items that run in this environment.
            images: What is known of each image that their VMs may be made from; at least one.
        """
        return ()

    @classmethod
    def bare_item(cls, config: RunConfig) -> Item | None:  # noqa: ARG003
        """Returns an item that sets nothing up, for desktops that are lent without a task; None if there is none."""
        return None

    @classmethod
    def snapshot(cls, item: Item) -> str | None:  # noqa: ARG003
        """Returns the snapshot that the item's VM starts from instead of the run's, if its VMs offer several."""
        return None

    @classmethod
    def prepare(cls, config: RunConfig, item: Item) -> Mapping[str, str] | None:
        """Does slow work that needs no VM, such as downloads, before the attempt asks for one.

        Returns:
            For the attempt's record, the SHA-256 of each downloaded file by its URL; or None.
        """

    @classmethod
    def preload(cls) -> None:
        """Imports what episodes use; called once in a worker that serves the environment, before it forks."""

    @classmethod
    def check_available(cls) -> None:
        """Raises `RuntimeError` with one sentence if this machine cannot serve the environment."""
