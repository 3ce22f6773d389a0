"""A desktop session's results: how an action ended, and what can be seen. Plain values; importing this is cheap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rollout_tasks.environments.base import Observation
from rollout_tasks.environments.osworld.guest_python import Action


@dataclass(frozen=True, slots=True)
class CommandOutcome:
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
    """Where each mark is; None if marks are not drawn."""


class DesktopSession(Protocol):
    """One attempt's session on a desktop, wherever its task's code runs. Raises `VMUnreachable` if the VM is gone."""

    def begin(self) -> DesktopView:
        """Sets the task up, starts the recording, and looks."""

    def act(self, action: Action | None, pause: float) -> tuple[CommandOutcome, DesktopView]:
        """Carries out an action, or only waits for `pause` seconds, and looks."""

    def take_recording(self, take: Callable[[bytes], object]) -> None:
        """Ends the recording and passes it on in pieces; in none if there is no recording."""

    def score(self) -> float:
        """Returns the score of the task's own evaluator."""

    def close(self) -> None:
        """Detaches from the VM, in every case."""


class AttemptFiles(Protocol):
    """Files that a session gets from its attempt, and leaves there."""

    def place(self, url: str, target: Path) -> None:
        """Writes the file of a URL that the task names to a path."""

    def log(self, text: str) -> None:
        """Keeps desktop-env's log."""
