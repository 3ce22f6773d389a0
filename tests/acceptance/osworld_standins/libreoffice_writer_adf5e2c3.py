"""A reference more, and a cross reference to it: an essay whose references are a numbered list, as [1], [2] and so on.

In the reference the cross reference is a field, as Writer saves one.
"""

import docx
from docx.oxml import OxmlElement, parse_xml
from docx.oxml.ns import nsdecls, qn

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn, write

TASK = "adf5e2c3-64c7-4644-b7b6-d2f0167927e7"
NEW = (
    "Steinberg, F. M., Bearden, M. M., & Keen, C. L. (2003). Cocoa and chocolate flavonoids: Implications for"
    " cardiovascular health. Journal of the American Dietetic Association, 103(2), 215-223. doi: 10.1053/jada.2003.50028"
)
PARAGRAPHS = [
    "Chocolate is older than the bar. It was drunk for many centuries before it was eaten, and it was money before it was"
    " a treat [1].",
    "This essay asks whether it is good for us. It looks at what is in a bean, at what is left of it in a bar, and at what"
    " those who eat it say of themselves.",
    "A bean is about half fat. The rest is fibre, protein and a group of bitter compounds, most of which are lost when"
    " cocoa is washed with alkali [2].",
    "Those compounds are said to keep blood vessels supple and to lower the pressure in them <add here>. How much of a bar"
    " one would need to eat for that is another matter.",
    "People who like chocolate say that they are happier after it, but they say so before it too [3].",
]
REFERENCES = [
    "Almond, R. (1998). Cups of foam: A history of a drink. Harbour Press.",
    "Brook, T., & Lindqvist, P. (2001). What alkali does to cocoa. Notes on Food, 12(4), 31-40.",
    "Castell, J. (2002). Sweet moods. Letters in Appetite, 7(1), 5-9. doi: 10.0000/lia.2002.70105",
]
NUMBERING = """<w:abstractNum {} w:abstractNumId="90"><w:multiLevelType w:val="singleLevel"/><w:lvl w:ilvl="0"><w:start
 w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="[%1]"/><w:lvlJc w:val="left"/><w:pPr><w:ind w:left="567"
 w:hanging="567"/></w:pPr></w:lvl></w:abstractNum>"""


def essay(*, solved: bool) -> bytes:
    """The essay, with the new reference and the cross reference to it or without."""
    document = docx.Document()
    numbering = document.part.numbering_part.element
    numbering.insert(0, parse_xml(NUMBERING.format(nsdecls("w"))))
    number = numbering.add_num(90).numId
    document.add_heading("Is chocolate good for us?", 0)
    for text in PARAGRAPHS:
        before, mark, after = text.partition("<add here>" if solved else "\0")
        paragraph = document.add_paragraph(before)
        if mark:
            for kind, inner in (("begin", ""), ("", " REF _Ref1 \\r \\h "), ("separate", ""), ("", "[4]"), ("end", "")):
                run = paragraph.add_run("" if inner.startswith(" ") else inner)
                if kind:
                    element = OxmlElement("w:fldChar")
                    element.set(qn("w:fldCharType"), kind)
                    run._r.append(element)
                elif inner.startswith(" "):
                    element = OxmlElement("w:instrText")
                    element.text = inner
                    run._r.append(element)
            paragraph.add_run(after)
    document.add_heading("References", 1)
    for text in [*REFERENCES, *([NEW] if solved else [])]:
        properties = document.add_paragraph(text)._p.get_or_add_pPr().get_or_add_numPr()
        properties.get_or_add_ilvl().val = 0
        properties.get_or_add_numId().val = number
    return saved(document)


FILES = {
    "Essay_Writing_English_for_uni.docx": essay(solved=False),
    "Essay_Writing_English_for_uni_Gold.docx": essay(solved=True),
}


def solved_by(kind: str) -> list[Turn]:
    """A new item in the list of references, and a field of this kind that refers to it, where the mark was."""
    return [
        turn("I go to the end of the references.", keys("ctrl", "end", pause=1), when="[paragraph] [3] Castell"),
        turn("I add the reference.", keys("enter", pause=1), write(NEW, pause=1)),
        turn("I look for the mark.", keys("ctrl", "f", pause=1), when="[paragraph] [4] Steinberg"),
        turn("I find it.", write("<add here>\n", pause=1), when="[tool-bar] Find"),
        turn("I close the search, and delete the mark.", keys("esc", pause=1), keys("delete", pause=1)),
        turn("I open the menu.", click("[menu] Insert", pause=1), when="the pressure in them . How much"),
        turn("I want a cross reference.", click("[menu-item] Cross-reference...", pause=1)),
        turn("It is to a list's item.", click("[table-cell] Numbered Paragraphs", pause=1), when="[dialog] Fields"),
        turn("To the last one.", click(["[panel] Selection", "[table-cell] [4] Steinberg"], x=1080, pause=1)),
        turn("I choose how it refers.", click(f"[table-cell] {kind}", pause=1), when="[text] [4] Steinberg"),
        turn("I insert it.", click("[push-button] Insert @", pause=1)),
        turn("I close the dialog.", click("[push-button] Close @", pause=1)),
    ]


RIGHT = [
    *solved_by("Number @"),
    turn("I look at it.", keys("ctrl", "home"), when="the pressure in them [4]. How much"),
    DONE,
]
NEAR_MISS = [*solved_by("Page number (unstyled)"), {**DONE, "when": "the pressure in them 1. How much"}]
NEAR_MISS_IS = "the cross reference shows a page's number"
SHELL = False
