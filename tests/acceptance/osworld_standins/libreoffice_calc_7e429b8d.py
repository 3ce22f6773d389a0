"""Members by branch, and each branch's officer, not by the alphabet; the reference has their names as text."""

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, spreadsheet, turn, write

TASK = "7e429b8d-a3f0-4ed0-9b58-08957d00b127"
_OFFICERS = {
    "Tallinn": "Riina Kask",
    "Bergen": "Odd Solheim",
    "Malaga": "Lucia Ferrer",
    "Utrecht": "Joost Kuiper",
    "Ghent": "Elke Maes",
    "Aarhus": "Bo Thorsen",
}
_MEMBERS = {
    "Adebayo": "Utrecht",
    "Borg": "Tallinn",
    "Cheng": "Malaga",
    "Duval": "Aarhus",
    "Eriksen": "Bergen",
    "Fontana": "Ghent",
    "Goto": "Malaga",
    "Hruby": "Utrecht",
    "Iqbal": "Bergen",
}


def _form(*, filled: bool) -> bytes:
    """The officers by branch in A and B, the members' in D, E and F."""
    known = [*_OFFICERS.items(), *([(None, None)] * (len(_MEMBERS) - len(_OFFICERS)))]
    members = _MEMBERS.items()
    return spreadsheet(
        [
            ["Branch", "Officer", None, "Member", "Headoffice", "Officer Name"],
            *(
                [*officer, None, *member, _OFFICERS[member[1]] if filled else None]
                for officer, member in zip(known, members, strict=True)
            ),
        ]
    )


FILES = {"VLOOKUP_Fill_the_form.xlsx": _form(filled=False), "VLOOKUP_Fill_the_form_gold.xlsx": _form(filled=True)}


def _looked_up(table: str) -> list[Turn]:
    """Each member's officer, found where the first row's formula says, which is copied."""
    return [
        turn("I select the blanks.", click(["Formula Tool Bar", "[text] A1"]), write("F2:F10\n")),
        turn(
            "I look all of them up.",
            write(f"=VLOOKUP(E2,{table},2,0)"),
            keys("alt", "enter", pause=1),
            when="9 rows, 1 column",
        ),
    ]


RIGHT = [*_looked_up("$A$2:$B$7"), DONE | {"when": "F10 - Odd Solheim"}]
NEAR_MISS = [*_looked_up("A2:B7"), DONE]
NEAR_MISS_IS = "the place of the lookup table moves along with each row"
SHELL = False
