"""The film of another task, played in a window."""

from tests.acceptance.osworld_standins import vlc_59f21cfb
from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, turn

TASK = "8d9fd4e2-6fdb-46b0-b9b9-02f06495c62f"
FILES = {"Optimus - Gen 2.mp4": next(iter(vlc_59f21cfb.FILES.values()))}
_PLAYER = "[frame] Gen 2.mp4 - VLC media player"


def _larger(*names: str) -> list[Turn]:
    return [
        turn("I click on the film.", click(_PLAYER, pause=1.5), when=_PLAYER),
        turn("I make it larger.", keys(*names, pause=3)),
        DONE,
    ]


RIGHT = _larger("f")
NEAR_MISS = _larger("winleft", "up")
NEAR_MISS_IS = "the window is maximized, the screen not filled"
SHELL = False
