"""Makes what the agent sees from what desktop-env observes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollout_tasks.config import DesktopConfig
from rollout_tasks.environments.base import Observation
from rollout_tasks.environments.osworld import accessibility_table, accessibility_tree, set_of_marks
from rollout_tasks.environments.osworld.screenshot import size_of
from rollout_tasks.environments.osworld.session_results import DesktopView

NO_TREE = "(The programs gave no accessibility tree.)"
TERMINAL_HEADING = "Terminal:"


def desktop_view(seen: Mapping[str, Any], config: DesktopConfig) -> DesktopView:
    """Returns the observation in the run's type.

    Args:
        seen: As `DesktopEnv.step` returns it, with a screenshot.
        config: Says what the agent sees.

    Raises:
        ValueError: The screenshot is not a picture, or an agent without pictures would see nothing.
    """
    picture = seen["screenshot"]
    screen = size_of(picture)
    kind = config.observation_type
    found = _elements(seen, config, screen)
    if found is None and kind == "a11y_tree":
        raise ValueError("the guest gave no accessibility tree")
    text, places = "", None
    if kind == "som":
        chosen = set_of_marks.choose(found or [], screen)
        places = {number: element.centre for number, element in chosen.items() if element.centre is not None}
        picture, text = set_of_marks.draw(picture, chosen), set_of_marks.listed(chosen) or NO_TREE
    elif kind != "screenshot" and config.require_a11y_tree:
        text = NO_TREE if found is None else _written(seen, found, config)
    if config.require_terminal and seen.get("terminal"):
        text = f"{text}\n\n{TERMINAL_HEADING}\n{seen['terminal']}".lstrip()
    return DesktopView(Observation(text, () if kind == "a11y_tree" else (picture,)), screen, places)


def _written(seen: Mapping[str, Any], found: list[accessibility_tree.Element], config: DesktopConfig) -> str:
    if config.a11y == "osworld":
        return accessibility_table.written(seen["accessibility_tree"], system=config.os_type.lower())
    return accessibility_tree.lines(found, with_places=config.observation_type == "a11y_tree")


def _elements(
    seen: Mapping[str, Any], config: DesktopConfig, screen: tuple[int, int]
) -> list[accessibility_tree.Element] | None:
    tree = seen.get("accessibility_tree")
    if not tree:
        return None
    try:
        return accessibility_tree.elements(tree, system=config.os_type.lower(), screen=screen)
    except ValueError:
        return None
