"""Four papers, each by several authors of different places, and a table of the first ones.

Their full names are in another order than their family names, as the papers' files are.
"""

from tests.acceptance.osworld_standins.made import (
    DONE,
    Turn,
    click,
    double_click,
    keys,
    printed,
    spreadsheet,
    turn,
    write,
)

TASK = "b5062e3e-641c-4e3a-907b-ac864d2e7652"
HEAD = ["Name", "E-mail", "Affiliation"]
FIRST = {
    "deng_mind2web.pdf": ["Wei Deng", "deng.wei@ohr.example.edu", "Ohara Institute of Robotics"],
    "koh_visualwebarena.pdf": ["Marcus Koh", "mkoh@cs.brightwater.example.edu", "Brightwater University"],
    "niu_screenagent.pdf": ["Lian Niu", "niul22@stu.northgate.example.cn", "Northgate University"],
    "zhang_appagent.pdf": ["Bo Zhang", "bozhang@fieldlab.example.com", "Fieldlab Research"],
}
"""Of each file: the first author's name, address and place."""


def _paper(title: str, authors: str, places: list[str], addresses: str, abstract: list[str]) -> bytes:
    rows = [title, "", authors, *places, addresses, "", "Abstract", *abstract, "", "1  Introduction", *abstract[::-1]]
    return printed([[row] for row in rows])


FILES = {
    "2312.13771.pdf": _paper(
        "Thumbs: a Helper that Learns to Use a Telephone",
        "Bo Zhang¹, Ines Calder², Tomas Brandt¹*",
        ["¹ Fieldlab Research   ² Lakeside University"],
        "{bozhang, tbrandt}@fieldlab.example.com, calder@lakeside.example.edu   * corresponding author",
        [
            "A helper looks at the screen of a telephone and decides where to tap.",
            "It first tries what buttons do and writes that down; later it reads its notes.",
        ],
    ),
    "2402.07945.pdf": _paper(
        "Pointer: a Model that Works at a Screen",
        "Lian Niu, Greta Holm, Omar Nasser",
        ["School of Computing, Northgate University", "Northgate University", "Harbour University"],
        "niul22@stu.northgate.example.cn, gholm@northgate.example.cn, omar@harbour.example.edu",
        [
            "A model plans, acts and looks again; what it has done wrong it tries in another way.",
            "We have recorded six hundred tasks on desktops, and compare eight models.",
        ],
    ),
    "2401.13649.pdf": _paper(
        "Shop Windows: Tasks on Web Pages that Must Be Seen",
        "Marcus Koh, Lena Ostrow, Robin Vale",
        ["Brightwater University"],
        "{mkoh, lostrow, rvale}@cs.brightwater.example.edu",
        [
            "Many pages cannot be used by their text alone: what is wanted is in a picture.",
            "We set up three sites and nine hundred tasks, and score what came of them.",
        ],
    ),
    "5950bf290a1570ea401bf98882128160-Paper-Datasets_and_Benchmarks.pdf": _paper(
        "Any Site: a Collection of What People Do on the Web",
        "Wei Deng¹*, Mira Sand²",
        ["¹ Ohara Institute of Robotics   ² Lantau Institute"],
        "* deng.wei@ohr.example.edu; sand@lantau.example.hk",
        [
            "Two thousand tasks on more than a hundred sites, each with what a person clicked.",
            "A small model first chooses elements of the page, a larger one among them.",
        ],
    ),
    "authors-ground_truth.xlsx": spreadsheet([HEAD, *sorted(FIRST.values())]),
}


def _looks(name: str) -> list[Turn]:
    return [
        turn(f"I read {name}.", double_click(f"[label] {name}", pause=1), when=f"[label] {name}"),
        turn("I close it.", keys("ctrl", "w", pause=1), when=f"[frame] {name}"),
    ]


def _script(rows: list[list[str]]) -> list[Turn]:
    cells = "".join("\t".join(row) + "\n" for row in [HEAD, *rows])
    return [
        *(one for name in FIRST for one in _looks(name)),
        turn("I open a spreadsheet.", click("[push-button] LibreOffice Calc"), when="[frame] Papers"),
        turn("I write what I read.", write(cells, pause=1), when="A1 (focused)"),
        turn("I save it.", keys("ctrl", "s", pause=4), when="Wei Deng"),
        turn("In the home folder.", write("/home/user/authors.xlsx\n", pause=2)),
        DONE | {"when": "authors.xlsx - LibreOffice Calc"},
    ]


RIGHT = _script(sorted(FIRST.values()))
NEAR_MISS = _script(list(FIRST.values()))
NEAR_MISS_IS = "sorted by family names"
SHELL = False
