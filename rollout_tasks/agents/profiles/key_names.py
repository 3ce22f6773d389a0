"""Keys as models write them, one by one or as a combination; the names themselves are in the environment's `keys`.

Readers take the keys of every system: a reply means the same wherever it is read. Then `check_keys` refuses what the guest lacks.
"""

from __future__ import annotations

from collections.abc import Iterable

from rollout_tasks.agents.profiles.actions import (
    Action,
    Click,
    Drag,
    HoldKeys,
    KeyDown,
    Keys,
    KeyUp,
    Press,
    Scroll,
)
from rollout_tasks.agents.profiles.reply import UnusableReplyError, shown
from rollout_tasks.environments.osworld.keys import known_combination, known_key, pressed_together

MOST_KEYS = 8
"""Pressed together."""
LONGEST_NAME = 200
"""Characters of a combination."""


def key(name: object) -> str:
    """Returns a key's name as pyautogui knows it.

    Raises:
        UnusableReplyError: No such key.
    """
    known = known_key(name) if isinstance(name, str) and len(name) <= LONGEST_NAME else None
    if known is None:
        raise UnusableReplyError(f"The key {shown(name)} is unknown.")
    return known


def together(names: Iterable[object]) -> Keys:
    """Returns the keys of a combination, given one by one or as ``ctrl+s``, as they are pressed at once.

    Raises:
        UnusableReplyError: There is no key, an unknown one, or too many.
    """
    keys: list[str] = []
    for name in names:
        keys += _parts(name)
        if len(keys) > MOST_KEYS:
            raise UnusableReplyError(f"More than {MOST_KEYS} keys are pressed together.")
    if not keys:
        raise UnusableReplyError("The keys are missing.")
    return tuple(pressed_together(keys))


def combination(text: object) -> Keys:
    """Returns the keys of a combination written as ``ctrl+s`` or ``ctrl s``.

    Raises:
        UnusableReplyError: There is no key, an unknown one, or too many.
    """
    if not isinstance(text, str) or len(text) > LONGEST_NAME:
        raise UnusableReplyError(f"The keys {shown(text)} are unknown.")
    return together([text] if known_key(text) else text.replace(" + ", "+").split())


def check_keys(actions: Iterable[Action], system: str) -> None:
    """Checks that the guest has every key of a reply.

    Raises:
        UnusableReplyError: Its system has no such key.
    """
    for action in actions:
        for name in _keys_of(action):
            if known_key(name, system) is None:
                raise UnusableReplyError(f"The key {shown(name)} is unknown.")


def _keys_of(action: Action) -> Keys:
    match action:
        case Press(keys=keys) | HoldKeys(keys=keys):
            return keys
        case Click(held=keys) | Drag(held=keys) | Scroll(held=keys):
            return keys
        case KeyDown(key=name) | KeyUp(key=name):
            return (name,)
    return ()


def _parts(name: object) -> list[str]:
    if isinstance(name, str) and len(name) <= LONGEST_NAME and known_key(name) is None:
        several = known_combination(name)
        if several is not None:
            return several
    return [key(name)]
