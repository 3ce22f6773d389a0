"""A course's slides about outlines: the third has a list, of which one line is to lose its bullet and to keep its level.

Both files have what LibreOffice writes for each piece of text, as the reference that OSWorld's has been saved with: font, size,
weight, colour, the bullets with their indents.
"""

from collections.abc import Sequence

from pptx import Presentation
from pptx.dml.color import RGBColor
from pptx.enum.shapes import MSO_SHAPE
from pptx.enum.text import PP_ALIGN
from pptx.oxml import parse_xml
from pptx.slide import Slide
from pptx.util import Inches, Pt

from tests.acceptance.osworld_standins.made import DONE, click, keys, saved, turn

TASK = "a669ef01-ded5-4099-9ea9-25e99b569840"
Line = tuple[int, str, str]
_A = "http://schemas.openxmlformats.org/drawingml/2006/main"
_CONTINUED = "continuation of the sub topics"
_LISTS: Sequence[tuple[str, Sequence[Line]]] = (
    (
        "Why an Outline",
        [
            (0, "•", "It shows whether the argument holds before a page is written"),
            (0, "•", "It keeps each paragraph to a single thought"),
            (1, "–", "What does not fit is cut or moved"),
            (0, "•", "It makes a deadline less frightening"),
        ],
    ),
    (
        "The Shape of an Outline",
        [
            (0, "•", "main idea"),
            (1, "–", "sub topics"),
            (1, "–", _CONTINUED),
            (1, "–", "evidence, with its source"),
            (0, "•", "next main idea"),
            (1, "–", "its first sub topic"),
        ],
    ),
    (
        "Before You Hand It In",
        [(0, "•", "Read the headings alone: do they tell the story?"), (0, "•", "Ask a friend to explain it back")],
    ),
)


def _text(slide: Slide, number: int, lines: Sequence[Line], size: int, *, bold: bool = False) -> None:
    shape = slide.placeholders[number]
    shape.left, shape.top, shape.width, shape.height = shape.left, shape.top, shape.width, shape.height
    frame = shape.text_frame
    for at, (level, bullet, text) in enumerate(lines):
        paragraph = frame.paragraphs[0] if at == 0 else frame.add_paragraph()
        run = paragraph.add_run()
        run.text, paragraph.level = text, level
        run.font.name, run.font.size, run.font.bold = "Arial", Pt(size - 4 * level), bold
        run.font.color.rgb = RGBColor(0x20, 0x3A, 0x5C) if bold else RGBColor(0x33, 0x33, 0x33)
        layout = paragraph._p.get_or_add_pPr()
        if bold or size == 20:
            paragraph.alignment = PP_ALIGN.CENTER
        else:
            layout.set("marL", str(342900 + 400050 * level))
            layout.set("indent", "-285750" if bullet else "0")
            tag = f'<a:buChar xmlns:a="{_A}" char="{bullet}"/>' if bullet else f'<a:buNone xmlns:a="{_A}"/>'
            layout.append(parse_xml(tag))


def _slides(bullet: str) -> bytes:
    deck = Presentation()
    fill = deck.slide_masters[0].background.fill
    fill.solid()
    fill.fore_color.rgb = RGBColor(0xFF, 0xFF, 0xFF)
    first = deck.slides.add_slide(deck.slide_layouts[0])
    _text(first, 0, [(0, "", "Writing Outlines")], 40, bold=True)
    _text(first, 1, [(0, "", "Workshop 2, Academic Writing")], 20)
    for title, lines in _LISTS:
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        _text(slide, 0, [(0, "", title)], 36, bold=True)
        _text(slide, 1, [(level, bullet if text == _CONTINUED else mark, text) for level, mark, text in lines], 28)
    last = deck.slides[3]
    box = last.shapes.add_shape(MSO_SHAPE.RECTANGLE, Inches(6), Inches(5.8), Inches(3), Inches(0.8))
    box.fill.solid()
    box.fill.fore_color.rgb = RGBColor(0xE0, 0xE8, 0xF0)
    return saved(deck)


FILES = {"Writing-Outlines.pptx": _slides("–"), "Writing-Outlines_Gold.pptx": _slides("")}
_DIALOG = "[dialog] Bullets and Numbering"
_TO_THE_LINE = [
    turn(
        "I go to page 3.",
        click("[panel] The Shape of an Outline", pause=1),
        when="[document-presentation] Writing-Outlines",
    ),
    turn(
        "I put the cursor into the line.",
        click(f"[paragraph] {_CONTINUED}", num_clicks=2, pause=1),
        when=f"[paragraph] {_CONTINUED}",
    ),
]
RIGHT = [
    *_TO_THE_LINE,
    turn("I open the menu.", click("[menu] Format", pause=1), when="[label] TextEdit: Paragraph 3"),
    turn("I open the dialog.", click("[menu-item] Bullets and Numbering...", pause=1), when="Bullets and Numbering..."),
    turn("The line is of level 2.", click([_DIALOG, "[table-cell] 2 @"], pause=0.5), when=_DIALOG),
    turn("I look at the types.", click([_DIALOG, "[panel] Properties", "[toggle-button]"], pause=1)),
    turn("No bullet.", click([_DIALOG, "[table-cell] None"], pause=1), when="[table-cell] None"),
    turn("I confirm.", click([_DIALOG, "[push-button] OK"], pause=1)),
    turn("I leave the text.", keys("esc", pause=2)),
    DONE,
]
NEAR_MISS = [
    *_TO_THE_LINE,
    turn("I open the sidebar's lists.", click("[toggle-button] Lists", pause=1), when="[label] TextEdit: Paragraph 3"),
    turn("No bullet.", click("[push-button] Unordered List", pause=1), when="[push-button] Unordered List"),
    DONE,
]
NEAR_MISS_IS = "the line has no bullet, and has lost its level too"
SHELL = False
