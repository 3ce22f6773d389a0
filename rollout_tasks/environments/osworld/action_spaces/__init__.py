"""The action spaces: which tools an agent gets on a desktop, and what each call does. One module each."""

from __future__ import annotations

from types import ModuleType

from rollout_tasks.environments.osworld.action_spaces import claude_computer_use, computer_13, pyautogui

SPACES: dict[str, ModuleType] = {
    "computer_13": computer_13,
    "pyautogui": pyautogui,
    "claude_computer_use": claude_computer_use,
}
"""Each has ``tools(view)`` and ``plan(call, view)``; see `base`."""
