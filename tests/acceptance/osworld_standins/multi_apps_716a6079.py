"""A document in a folder of a folder, found by the file manager's search.

A file that is copied there is its path, where text is pasted.
"""

from docx import Document

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn, write

TASK = "716a6079-22da-47f1-ba73-c9d58f986a38"


def _secret() -> bytes:
    document = Document()
    document.add_heading("For nobody else", 0)
    document.add_paragraph("The spare key is under the third flower pot from the left.")
    return saved(document)


FILES = {"Secret document.docx": _secret()}


def _found(*then: Turn) -> list[Turn]:
    return [
        turn("I open the file manager.", click("[push-button] Files", pause=2), when="[push-button] Files"),
        turn("I search.", keys("ctrl", "f", pause=1), when="[frame] Home"),
        turn("I say for what.", write("secret.docx", pause=2)),
        turn("I choose it.", click("[label] secret.docx", pause=1), when="[label] secret.docx"),
        *then,
    ]


RIGHT = _found(turn("I copy it.", keys("ctrl", "c", pause=1), when="“secret.docx” selected"), DONE)
NEAR_MISS = _found(
    turn("I go where it is.", keys("ctrl", "alt", "o", pause=2), when="“secret.docx” selected"),
    turn("I look where that is.", keys("ctrl", "l", pause=1), when="[frame] List3"),
    turn("I copy that.", keys("ctrl", "a", pause=0.5), keys("ctrl", "c", pause=1), when="/home/user/Data3/List3"),
    DONE,
)
NEAR_MISS_IS = "the path of its folder, without its name"
SHELL = False
