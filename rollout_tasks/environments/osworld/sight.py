"""What the agent gets to see, made from what desktop-env observes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollout_tasks.config import DesktopConfig
from rollout_tasks.environments.base import Observation
from rollout_tasks.environments.osworld import a11y, marks, osworld_table
from rollout_tasks.environments.osworld.outcome import Sight
from rollout_tasks.environments.osworld.screenshot import size_of

NO_TREE = "(The programs gave no accessibility tree.)"
TERMINAL_HEADING = "Terminal:"


def sight(seen: Mapping[str, Any], config: DesktopConfig) -> Sight:
    """The observation of the run's type.

    Args:
        seen: As `DesktopEnv.step` returns it, with a screenshot.
        config: Says what the agent sees.

    Raises:
        ValueError: The screenshot is no picture, or an agent without pictures would see nothing.
    """
    picture = seen["screenshot"]
    screen = size_of(picture)
    kind = config.observation_type
    found = _elements(seen, config)
    if found is None and kind == "a11y_tree":
        raise ValueError("the guest gave no accessibility tree")
    text, places = "", None
    if kind == "som":
        chosen = marks.choose(found or [], screen)
        places = {number: element.centre for number, element in chosen.items() if element.centre is not None}
        picture, text = marks.draw(picture, chosen), marks.listed(chosen) or NO_TREE
    elif kind != "screenshot" and config.require_a11y_tree:
        text = NO_TREE if found is None else _written(seen, found, config)
    if config.require_terminal and seen.get("terminal"):
        text = f"{text}\n\n{TERMINAL_HEADING}\n{seen['terminal']}".lstrip()
    return Sight(Observation(text, () if kind == "a11y_tree" else (picture,)), screen, places)


def _written(seen: Mapping[str, Any], found: list[a11y.Element], config: DesktopConfig) -> str:
    if config.a11y == "osworld":
        return osworld_table.written(seen["accessibility_tree"], system=config.os_type.lower())
    return a11y.lines(found, with_places=config.observation_type == "a11y_tree")


def _elements(seen: Mapping[str, Any], config: DesktopConfig) -> list[a11y.Element] | None:
    tree = seen.get("accessibility_tree")
    if not tree:
        return None
    try:
        return a11y.elements(tree, system=config.os_type.lower())
    except ValueError:
        return None
