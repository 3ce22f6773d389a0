"""An empty profile of Thunderbird, in which no account can be set up for sending alone."""

from tests.acceptance.osworld_standins.made import DONE, FAIL, click, turn, write
from tests.acceptance.osworld_standins.thunderbird_15c3b339 import FILES

__all__ = ["FILES"]
TASK = "a1af9f1c-50d5-4bc3-a51e-4d9b425ff638"
_TAB = "[page-tab] Account Setup"
_ENTRY = "[entry] Email address"
_SETUP = [
    turn("I go to the page, another may be in front.", click(_TAB, pause=3), when=_TAB),
    turn("I go to the page, should another have come.", click(_TAB, pause=2), when=_TAB),
    turn("I give the address.", click(_ENTRY, pause=0.5), write("anonym-x2024@outlook.com", pause=1), when=_ENTRY),
]
RIGHT = [*_SETUP, FAIL]
NEAR_MISS = [*_SETUP, DONE]
NEAR_MISS_IS = "the address is given, and the task called done"
SHELL = False
