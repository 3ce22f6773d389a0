"""What every protocol's reader returns, and how it refuses a reply that cannot be used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rollout_tasks.agents.profiles.actions import Action, CallUser, Done, Fail
from rollout_tasks.agents.thinking import after_thinking
from rollout_tasks.unicode_text import storable

MOST_CHARACTERS = 200_000
"""Of a reply, and of every text in one."""
MOST_TYPED = 10_000
"""Characters of a text to type: the guest takes 5 ms for each, and a step has to end within two minutes."""
MOST_ACTIONS = 100
MOST_SECONDS = 100.0
"""Of a wait, or of keys held down; commands in the guest may take no longer than two minutes."""
_LARGEST_NUMBER = 10**100
"""Of those that become text; Python refuses to write out much longer ones."""
MOST_NOTCHES = 1000
"""Of the wheel; more than any page has, and more is cut to this."""


class UnusableReplyError(ValueError):
    """A reply that holds no action that can be carried out; the message is one sentence for the model."""


@dataclass(frozen=True, slots=True)
class SafetyCheck:
    """A check that the Responses API wants acknowledged before it goes on."""

    id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ComputerCall:
    """A call that must be answered under its id, as in the Messages API and the Responses API."""

    id: str
    actions: tuple[Action, ...]
    safety_checks: tuple[SafetyCheck, ...] = ()


@dataclass(frozen=True, slots=True)
class Parsed:
    """A reply that has been understood."""

    actions: tuple[Action, ...]
    """In order, at least one. `Done`, `Fail` and `CallUser` come last: what the reply has after them is left out."""
    thought: str = ""
    """The reasoning in the reply itself, without the protocol's headings."""
    said: str = ""
    """The action in the model's own words, where the protocol has a part for them."""
    observation: str = ""
    """What the model says it sees, where the protocol has such a part."""
    calls: tuple[ComputerCall, ...] = ()
    """The calls with everything in them, where the protocol has calls with ids."""


def parsed_calls(calls: Iterable[ComputerCall]) -> Parsed:
    """Returns the result for a protocol with calls that have ids.

    Raises:
        UnusableReplyError: There is no action, or there are too many.
    """
    kept = tuple(calls)
    actions = until_the_end(action for call in kept for action in call.actions)
    return Parsed(actions, calls=kept)


def until_the_end(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Returns the actions up to the one that ends the episode or hands over to the user.

    Raises:
        UnusableReplyError: There is none, or there are too many.
    """
    kept: list[Action] = []
    for action in actions:
        if len(kept) == MOST_ACTIONS:
            raise UnusableReplyError(f"The reply has more than {MOST_ACTIONS} actions.")
        kept.append(action)
        if isinstance(action, Done | Fail | CallUser):
            break
    if not kept:
        raise UnusableReplyError("The reply has no action.")
    return tuple(kept)


def bounded(text: object, what: str = "reply") -> str:
    """Returns text of a model that can be stored and sent.

    Raises:
        UnusableReplyError: It is not text, or too long.
    """
    if not isinstance(text, str):
        raise UnusableReplyError(f"The {what} is not text.")
    if len(text) > MOST_CHARACTERS:
        raise UnusableReplyError(f"The {what} has more than {MOST_CHARACTERS} characters.")
    return storable(text)


def without_thinking(text: str) -> str:
    """Returns a reply without what the model thought before it: all until ``</think>``, with or without an opening tag.

    Raises:
        UnusableReplyError: The thinking begins with its tag and does not end: what it considers is not an action.
    """
    reply = after_thinking(text)
    if reply is None:
        raise UnusableReplyError("The thinking after <think> does not end: </think> is missing.")
    return reply


def written(value: object) -> object:
    """Returns a number as text, and anything else as it is: models that write JSON leave out the quotes around ``2024``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return str(value) if -_LARGEST_NUMBER < value < _LARGEST_NUMBER else value


def some_text(text: object, what: str) -> str:
    """Returns text of a model that is not empty.

    Raises:
        UnusableReplyError: It is not text, empty, or too long.
    """
    if text is None or text == "":
        raise UnusableReplyError(f"The {what} is missing.")
    return bounded(text, what)


def typed_text(text: object, what: str) -> str:
    """Returns text of a model that can be typed within a step.

    Raises:
        UnusableReplyError: It is not text, empty, or longer than `MOST_TYPED`.
    """
    typed = some_text(text, what)
    if len(typed) > MOST_TYPED:
        raise UnusableReplyError(f"The {what} has more than {MOST_TYPED} characters: type it in several parts.")
    return typed


def number(value: object, what: str, most: float) -> float:
    """Returns a number of a model.

    Args:
        value: What it wrote.
        what: What the number is, for the message.
        most: How far from zero it may be.

    Raises:
        UnusableReplyError: It is not a number, not finite, or too far from zero.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnusableReplyError(f"The {what} is not a number.")
    if not -most <= value <= most:  # also NaN; whole numbers of any length compare exactly
        raise UnusableReplyError(f"The {what} is outside of what is possible.")
    return value


def seconds(value: object, what: str) -> float:
    """Returns a duration of at most `MOST_SECONDS`; a longer one is cut.

    Raises:
        UnusableReplyError: It is not a number, not finite, or negative.
    """
    given = number(value, what, math.inf)
    if given < 0 or given == math.inf:
        raise UnusableReplyError(f"The {what} is outside of what is possible.")
    return float(min(given, MOST_SECONDS))


def notches(value: object, what: str) -> int:
    """Returns turns of the wheel, without their fraction and cut to `MOST_NOTCHES` in either direction.

    Raises:
        UnusableReplyError: It is not a finite number.
    """
    given = number(value, what, math.inf)
    if given in (math.inf, -math.inf):
        raise UnusableReplyError(f"The {what} is outside of what is possible.")
    return int(max(-MOST_NOTCHES, min(given, MOST_NOTCHES)))


def fields(value: object, what: str) -> Mapping[str, Any]:
    """Returns a JSON object.

    Raises:
        UnusableReplyError: It is something else.
    """
    if not isinstance(value, dict):
        raise UnusableReplyError(f"The {what} is not an object with fields.")
    return value


def shown(text: object) -> str:
    """Returns the beginning of something a model wrote, quoted for a message."""
    return repr(text[:40]) if isinstance(text, str) else f"a {type(text).__name__}"
