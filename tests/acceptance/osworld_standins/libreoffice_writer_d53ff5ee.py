"""All text in lower case: instructions with words in capitals, names, numbers, accents and a list; so is the reference."""

import docx

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn

TASK = "d53ff5ee-3b1a-431e-b2be-30ed2673079b"
HEADING = "How to give YOUR PRESENTATION"
SENTENCES = [
    "You have TWELVE minutes. Stop when the bell rings, even in mid-sentence.",
    "Speak in ENGLISH, or in FRANÇAIS.",
]
LIST = ["BRING your slides as PDF", "Arrive by 8:45 AM in Room B12", "Name Élodie or Zoë as your helper"]


def instructions(*, lower: bool) -> bytes:
    """The instructions, as they are or in lower case; each second word of a sentence is bold."""
    document = docx.Document()
    document.add_heading(HEADING.lower() if lower else HEADING, 1)
    for sentence in SENTENCES:
        paragraph = document.add_paragraph()
        for number, word in enumerate((sentence.lower() if lower else sentence).split()):
            paragraph.add_run(f" {word}" if number else word).bold = number == 2
    for item in LIST:
        document.add_paragraph(item.lower() if lower else item, style="List Bullet")
    return saved(document)


FILES = {
    "presentation_instruction_2023_Feb.docx": instructions(lower=False),
    "presentation_instruction_2023_Feb_Gold.docx": instructions(lower=True),
}


def changed_by(item: str) -> list[Turn]:
    """All text is selected, and its case changed by this item of the menu."""
    return [
        turn("I select it all.", keys("ctrl", "a", pause=1), when=f"[heading] {HEADING}"),
        turn("I open the menu.", click("[menu] Format @", pause=1)),
        turn("On to how text looks.", click("[menu] Text @", pause=1)),
        turn("I change the case.", click(f"[menu-item] {item} @", pause=1)),
    ]


RIGHT = [*changed_by("lowercase"), DONE | {"when": "how to give your presentation"}]
NEAR_MISS = [*changed_by("Sentence case"), DONE | {"when": "How to give your presentation"}]
NEAR_MISS_IS = "each sentence still begins with a capital"
SHELL = False
