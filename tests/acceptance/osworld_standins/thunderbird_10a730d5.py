"""The profile of another task; its theme is Thunderbird's default, which is as the desktop is."""

from tests.acceptance.osworld_standins.made import DONE, Turn, click, turn
from tests.acceptance.osworld_standins.thunderbird_f201fbc3 import FILES

__all__ = ["FILES"]
TASK = "10a730d5-d414-4b40-b479-684bed1ae522"
_ACCOUNT, _ADD_ONS, _THEMES = "[section] robin.vale@example.org", "Add-ons and Themes", "[page-tab] Themes"


def _enabled(theme: str) -> list[Turn]:
    return [
        turn("I open the menu.", click("[push-button] AppMenu", pause=2), when=_ACCOUNT),
        turn("I look at the add-ons.", click(_ADD_ONS, pause=2), when=_ADD_ONS),
        turn("I look at the themes.", click(_THEMES, pause=2), when=_THEMES),
        turn("I enable one.", click([theme, "[push-button] Enable"], pause=2), when=theme),
        DONE | {"when": "[push-button] Disable"},
    ]


RIGHT = _enabled("[section] Dark @")
NEAR_MISS = _enabled("[section] Light @")
NEAR_MISS_IS = "the light theme is enabled"
SHELL = False
