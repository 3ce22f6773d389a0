"""A list of students who have paid or not, beside a mail that is being written.

The profile is that of another task, under the name that the mail's sender has here.
"""

from tests.acceptance.osworld_standins import multi_apps_d9b7c649
from tests.acceptance.osworld_standins.made import DONE, Turn, click, double_click, spreadsheet, turn, write
from tests.acceptance.osworld_standins.thunderbird_f201fbc3 import renamed

TASK = "f5c13cdd-205c-4719-a562-348ae5cd1d91"
_PROFILE = "thunderbird-profile.tar.gz"
_HEAD = ["Student ID", "Name", "E-mail", "Tuition", "Paid on"]
_PAID = {
    "Alice": "2023-09-04",
    "Bernd": "2023-09-11",
    "Fox": None,
    "Gina": "2023-08-28",
    "Iron": None,
    "Liam": "2023-09-15",
    "Nancy": None,
    "Oscar": "2023-09-01",
    "Stella": None,
    "Theo": "2023-09-12",
}
_ROWS = [
    [230100 + number, name, f"{name.lower()}@someuniversity.edu", 4200, day]
    for number, (name, day) in enumerate(_PAID.items(), 1)
]
_BODY = b"""<p>Dear student,</p>
<p>the tuition of this term was due on 15 September, and has not reached us. Please pay it within a week.</p>
<p>If you have paid meanwhile, there is nothing that you need do.</p>
<p>Finance Department</p>
"""


def _profile() -> bytes:
    archive = multi_apps_d9b7c649.FILES[_PROFILE]
    for old, new in (("robin.vale@example.org", "anonym-x2024@outlook.com"), ("Robin Vale", "Anonym Tester")):
        archive = renamed(archive, old, new)
    return archive


FILES = {
    _PROFILE: _profile(),
    "Payment Reminder.html": _BODY,
    "tuition.xlsx": spreadsheet([_HEAD, *_ROWS]),
}
_LIST = "tuition_payment.xlsx"
_MAIL = "[toggle-button] Write: Reminder of Payment"


def _addressed(names: list[str]) -> list[Turn]:
    """Their addresses are put into the field for receivers."""
    addresses = [str(mail) for _, name, mail, _, _ in _ROWS if name in names]
    return [
        turn("I open the list.", double_click(f"[label] {_LIST}", pause=1), when=f"[label] {_LIST}"),
        turn("I read it, and go to the mail.", click(_MAIL, pause=1), when="theo@someuniversity.edu"),
        turn("I go to the field.", click("[entry] To ", pause=0.5), when="[entry] To "),
        turn("I enter their addresses.", write(",".join(addresses) + ",", pause=2)),
        DONE | {"when": addresses[-1]},
    ]


_OWING = [name for name, day in _PAID.items() if day is None]
RIGHT = _addressed(_OWING)
NEAR_MISS = _addressed(_OWING[:2] + _OWING[3:])
NEAR_MISS_IS = "one of those who have not paid is left out"
SHELL = False
