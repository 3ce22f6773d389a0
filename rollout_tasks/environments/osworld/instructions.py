"""The system prompt's text about a desktop."""

from __future__ import annotations

from rollout_tasks.config import DesktopConfig

_SEES = {
    "screenshot": "a screenshot",
    "a11y_tree": "the list of what is on the screen, taken from the programs' accessibility; '@ (x, y)' says where each is",
    "screenshot_a11y_tree": "a screenshot, and the list of what is on it, taken from the programs' accessibility",
    "som": "a screenshot on which everything that can be clicked is in a numbered box, and the list of those numbers",
}


def instructions(config: DesktopConfig) -> str:
    """Returns how to act, for the system prompt."""
    system = "Ubuntu Linux" if config.os_type == "Ubuntu" else config.os_type
    marks = (
        " Point at a box by its number (mark) rather than by coordinates." if config.observation_type == "som" else ""
    )
    return (
        f"You use a computer with {system} as a person does: with its mouse and its keyboard. The screen has"
        f" {config.screen_width}x{config.screen_height} pixels; (0, 0) is at the top left. Before the first action and"
        f" after each one you get {_SEES[config.observation_type]}.{marks}\n"
        "Look at what your last action did before you choose the next; programs may need a moment, so wait where"
        " something is still loading. Take several small steps rather than one large one. Save what the task asks for in"
        " the place and the form it names, and close dialogs that are in the way.\n"
        f"The user's password, also for sudo, is: {config.client_password}\n"
        "When the task is solved, call desktop_control with action done. When it cannot be solved at all, because this"
        " computer or its programs lack what it takes, call desktop_control with action fail instead of trying further."
        " Do not ask for anything: nobody answers."
    )
