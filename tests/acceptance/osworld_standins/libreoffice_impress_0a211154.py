"""Five slides with a picture each but one: two photographs of people, one of a cat, and a drawn man.

The slides of people become yellow, the second gets a title, with the apostrophe that the task has: LibreOffice makes another of it
as one types. The photographs are those that come with scikit-image.
"""

import io
from importlib.resources import files

from PIL import Image, ImageDraw
from pptx.dml.color import RGBColor
from pptx.util import Inches

from tests.acceptance.osworld_standins.made import (
    DONE,
    Turn,
    click,
    keys,
    saved,
    text_in,
    titled_slide,
    turn,
    white_deck,
    write,
)

TASK = "0a211154-fda0-48d0-9274-eaac4ce5486d"
_LINES = ["Who takes pictures", "What is in them", "Where they hang"]
_PICTURES = {
    "A Portrait": "astronaut",
    "Contents": "",
    "A Cat at Noon": "chelsea",
    "At Work": "camera",
    "How to Stand": "drawing",
}
_PEOPLE = ["A Portrait", "At Work"]


def _picture(name: str) -> io.BytesIO:
    if name == "drawing":
        picture = Image.new("RGB", (400, 400), "white")
        draw = ImageDraw.Draw(picture)
        draw.ellipse((160, 40, 240, 120), outline="black", width=6)
        for line in ((200, 120, 200, 250), (200, 160, 120, 200), (200, 160, 280, 200)):
            draw.line(line, fill="black", width=6)
        draw.line((140, 360, 200, 250, 260, 360), fill="black", width=6)
    else:
        with files("skimage.data").joinpath(f"{name}.png").open("rb") as photograph:
            picture = Image.open(photograph).convert("RGB")
        picture.thumbnail((400, 400))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file


def _slides(*, solved: bool) -> bytes:
    deck = white_deck()
    for heading, name in _PICTURES.items():
        slide = titled_slide(deck, 5 if name else 1)
        title = "Let's start" if solved and not name else heading
        text_in(slide.placeholders[0].text_frame, [title], 36, centred=True)
        if name:
            slide.shapes.add_picture(_picture(name), Inches(3), Inches(2.2), height=Inches(4))
        else:
            text_in(slide.placeholders[1].text_frame, _LINES, 24, bullet="•")
        if solved and heading in _PEOPLE:
            slide.background.fill.solid()
            slide.background.fill.fore_color.rgb = RGBColor(0xFF, 0xFF, 0x00)
    return saved(deck)


FILES = {"13_0_.pptx": _slides(solved=False), "13_0_Gold.pptx": _slides(solved=True)}
_TAB = "[page-tab] Background"
_YELLOW = "[list-item] Yellow"


def _solved(*yellow: str) -> list[Turn]:
    """These slides become yellow, and the second gets its title."""
    panel = {heading: f"[panel] {heading}" for heading in _PICTURES}
    turns = []
    for heading in yellow:
        turns += [
            turn("I go to a slide.", click(panel[heading], pause=2), when=panel[heading]),
            turn("I open the menu.", click("[menu] Slide @", pause=1), when=f"[panel] PageShape: {heading}"),
            turn("I open the dialog.", click("[menu-item] Slide Properties...", pause=2), when="Slide Properties..."),
            turn("I look at the background.", click(_TAB, pause=1), when=_TAB),
            turn("I take yellow.", click(_YELLOW, pause=1), when=_YELLOW),
            turn("I confirm.", click(["[dialog]", "[push-button] OK"], pause=1.5)),
        ]
    text = "[paragraph] Contents"
    return [
        *turns,
        turn("I go to the second.", click(panel["Contents"], pause=2)),
        turn("I go into its title.", click(text, num_clicks=2, pause=1), when=text),
        turn("I select it all.", keys("ctrl", "a", pause=1), when="[label] TextEdit: Paragraph"),
        turn("I begin another.", write("Let'", pause=1)),
        turn("I take back what became of the apostrophe.", keys("ctrl", "z", pause=1), when="[paragraph] Let’"),
        turn("I go on.", write("s start", pause=1), when="[paragraph] Let'"),
        turn("I leave the text.", keys("esc", pause=1), keys("esc", pause=1)),
        DONE,
    ]


RIGHT = _solved(*_PEOPLE)
NEAR_MISS = _solved(*_PEOPLE, "How to Stand")
NEAR_MISS_IS = "the slide of the drawn man is yellow too"
SHELL = False
