"""What a session on a desktop answers: how an action went, and what is to be seen. Plain values; importing this costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rollout_tasks.environments.base import Observation
from rollout_tasks.environments.osworld.guest_python import Action


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the last command in the guest ended."""

    ok: bool
    output: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class DesktopView:
    """One look at the desktop."""

    observation: Observation
    screen: tuple[int, int]
    """Width and height in pixels."""
    marks: Mapping[int, tuple[int, int]] | None
    """Where each mark is; None where none are drawn."""


class DesktopSession(Protocol):
    """One attempt's hold on a desktop, wherever its task's code runs. Raises `VMLost` where the VM is gone."""

    def begin(self) -> DesktopView:
        """Sets the task up, starts the recording, and looks."""

    def act(self, action: Action | None, pause: float) -> tuple[Outcome, DesktopView]:
        """Carries out an action, or only waits for `pause` seconds, and looks."""

    def take_recording(self, take: Callable[[bytes], object]) -> None:
        """Ends the recording, which is given in pieces; in none where there is none."""

    def score(self) -> float:
        """What the task's own evaluator says."""

    def close(self) -> None:
        """Lets go of the VM, in every case."""


class AttemptFiles(Protocol):
    """What a session needs from its attempt, and leaves there."""

    def place(self, url: str, target: Path) -> None:
        """Puts the file of a URL that the task names at a place."""

    def log(self, text: str) -> None:
        """Keeps what desktop-env said."""
