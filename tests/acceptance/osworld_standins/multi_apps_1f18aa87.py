"""Three grammar tests of six questions each, and a document with the answers of the first, to which those of the others are added.

The task puts the tests on the desktop, not in the folder of which it speaks, which is empty.
"""

from __future__ import annotations

from docx import Document

from tests.acceptance.osworld_standins.made import (
    DONE,
    Turn,
    click,
    double_click,
    keys,
    printed,
    saved,
    spreadsheet,
    turn,
    write,
)

TASK = "1f18aa87-af6f-41ef-9853-cdb8f32ebdea"
# Sentence, choices, and which of them is right
_TESTS = {
    1: [
        ("She ___ to work by tram every day.", ["go", "goes", "going"], "B"),
        ("They ___ dinner when I called.", ["were having", "are having", "have"], "A"),
        ("I have lived here ___ 2015.", ["for", "from", "since"], "C"),
        ("This is ___ film I have ever seen.", ["the best", "best", "better"], "A"),
        ("If it rains, we ___ at home.", ["stayed", "will stay", "would stay"], "B"),
        ("There isn't ___ milk left.", ["many", "some", "any"], "C"),
    ],
    2: [
        ("We ___ him yesterday at noon.", ["meet", "have met", "met"], "C"),
        ("He speaks ___ than his brother.", ["more clearly", "clearer", "most clearly"], "A"),
        ("The letter ___ last week.", ["sent", "was sent", "has sent"], "B"),
        ("You ___ smoke in here; it is forbidden.", ["mustn't", "needn't", "don't"], "A"),
        ("She asked me where I ___.", ["live", "do live", "lived"], "C"),
        ("He is good ___ chess.", ["in", "at", "on"], "B"),
    ],
    3: [
        ("By next May they ___ the bridge.", ["will have built", "build", "have built"], "A"),
        ("Neither of the boys ___ here.", ["are", "were", "is"], "C"),
        ("I look forward to ___ from you.", ["hear", "hearing", "heard"], "B"),
        ("The man ___ car was stolen has left.", ["who", "which", "whose"], "C"),
        ("I wish I ___ more time.", ["had", "have", "would"], "A"),
        ("Hardly had he sat down ___ the bell rang.", ["when", "than", "then"], "A"),
    ],
}


def _test(number: int) -> bytes:
    document = Document()
    document.add_heading(f"Grammar test {number}", 1)
    for question, (sentence, choices, _) in enumerate(_TESTS[number], 1):
        document.add_paragraph(f"Question {question}: {sentence}")
        document.add_paragraph("    ".join(f"{letter}. {one}" for letter, one in zip("ABC", choices, strict=True)))
    return saved(document)


def _key(number: int) -> list[str]:
    return [f"Question {question}: {letter}" for question, (*_, letter) in enumerate(_TESTS[number], 1)]


def _answers(*numbers: int) -> bytes:
    document = Document()
    for number in numbers:
        for line in (f"Grammar test {number}", *_key(number)):
            document.add_paragraph(line)
    return saved(document)


def _plan() -> bytes:
    document = Document()
    document.add_heading("Public lecture: teaching plan", 1)
    for line in ("Greet the guests.", "Show how a sentence is built.", "Leave ten minutes for questions."):
        document.add_paragraph(line)
    return saved(document)


FILES = {
    "Grammer test 1.docx": _test(1),
    "Grammar test 2.docx": _test(2),
    "Grammer test 3.docx": _test(3),
    "Answer.docx": _answers(1),
    "Answer_Gold.docx": _answers(1, 2, 3),
    "irregularrules01.pdf": printed([["Irregular verbs, 1"], ["begin", "began", "begun"]]),
    "irregularrules02.pdf": printed([["Irregular verbs, 2"], ["write", "wrote", "written"]]),
    "fragrules.pdf": printed([["Fragments"], ["A sentence has a subject and a verb."]]),
    "csfsrules.pdf": printed([["Comma splices"], ["Two sentences need more than a comma between them."]]),
    "Public Lecture Teaching Plan.docx": _plan(),
    "Course Timetable.xlsx": spreadsheet(
        [["Day", "Hour", "Course"], ["Monday", 9, "Grammar"], ["Friday", 11, "Essays"]]
    ),
}
_FOLDER = "[toggle-button] Desktop"


def _opens(name: str) -> Turn:
    return turn(
        f"I open {name}.", double_click(["[frame] Desktop", f"[label] {name}"], pause=2), when=f"[label] {name}"
    )


def _script(order: list[int]) -> list[Turn]:
    """The tests are read, and answers added in the order in which these tests have them."""
    lines = [line for number, of in zip((2, 3), order, strict=True) for line in (f"Grammar test {number}", *_key(of))]
    return [
        turn("I look at the files.", click("[push-button] Files", pause=2)),
        turn("I go to the desktop.", double_click(["[frame] Home", "[label] Desktop"], pause=2), when="[frame] Home"),
        _opens("Grammer test 2.docx"),
        turn("I read it.", click(_FOLDER, pause=2), when="[paragraph] Question 6: He is good"),
        _opens("Grammer test 3.docx"),
        turn("I read it.", click(_FOLDER, pause=2), when="[paragraph] Question 6: Hardly"),
        _opens("Answer.docx"),
        turn("I go to its end.", keys("ctrl", "end", pause=1), when="[paragraph] Question 6: C"),
        turn("I add the others.", write("".join(f"\n{line}" for line in lines), pause=2)),
        DONE | {"when": f"[paragraph] {lines[-1]}"},
    ]


RIGHT = _script([2, 3])
NEAR_MISS = _script([3, 2])
NEAR_MISS_IS = "each test has the other's answers"
SHELL = False
