"""A lecture of five slides in two layouts, all white, which become blue.

The evaluator gives how near to pure blue they are. LibreOffice's colour of that name is another: it is told by its number.
"""

from collections.abc import Sequence

from tests.acceptance.osworld_standins.made import (
    DONE,
    Turn,
    click,
    saved,
    text_in,
    titled_slide,
    turn,
    white_deck,
    write,
)

TASK = "3b27600c-3668-4abd-8f84-7bcdebbccbdb"
_SLIDES: Sequence[tuple[int, str, Sequence[str]]] = (
    (0, "Lecture 17", ["Events in user interfaces"]),
    (1, "What an Event Is", ["A key, a click, a timer", "It waits in a queue"]),
    (1, "Who Listens", ["Each component has listeners", "They are called in turn"]),
    (1, "A Loop Without End", ["It takes an event", "It calls who listens"]),
    (1, "For Next Time", ["Write a button that counts"]),
)


def _lecture() -> bytes:
    deck = white_deck()
    for layout, heading, lines in _SLIDES:
        title, body = titled_slide(deck, layout).placeholders
        text_in(title.text_frame, [heading], 36, centred=True)
        text_in(body.text_frame, lines, 24, bullet="•" if layout else "")
    return saved(deck)


FILES = {"lec17-gui-events.pptx": _lecture()}
_MASTERS = 2
"""LibreOffice has one for each layout that is in use."""
_VIEW = "[document-frame] Slides View"
_TAB = "[page-tab] Background"


def _filled(*turns: Turn) -> list[Turn]:
    """All masters' backgrounds, as these turns say in the dialog."""
    each = []
    for number in range(1, _MASTERS + 1):
        each += [
            turn("I go to a master.", click([_VIEW, *["[panel]"] * number], pause=2), when="Close Master View"),
            turn("I open the menu.", click("[menu] Slide @", pause=1)),
            turn("I open the dialog.", click("[menu-item] Slide Properties...", pause=2), when="Slide Properties..."),
            turn("I look at the background.", click(_TAB, pause=1), when=_TAB),
            *turns,
            turn("I confirm.", click(["[dialog]", "[push-button] OK"], pause=2)),
        ]
    return [
        turn("I go to the masters.", click("[push-button] Master View", pause=2), when="[push-button] Master View"),
        *each,
        turn("I go back to the slides.", click("[push-button] Close Master View", pause=2)),
        DONE,
    ]


RIGHT = _filled(
    turn("A colour.", click("[toggle-button] Color", pause=1), when="[toggle-button] Color"),
    turn("This one.", click(["[panel] New", "[text]"], num_clicks=3, pause=0.5), write("0000ff\t"), when="[panel] New"),
)
NEAR_MISS = _filled(
    turn("A gradient.", click("[toggle-button] Gradient", pause=1), when="[toggle-button] Gradient"),
    turn("A blue one.", click("[list-item] Blue Touch", pause=1), when="[list-item] Blue Touch"),
)
NEAR_MISS_IS = "the backgrounds fade to blue"
SHELL = False
