"""The last five mails of a local folder, listed in a new spreadsheet.

The profile has a POP3 account that never looks for mail and the local folder ``daily``, not stored in the order of time;
mails have Cc lines or none, and attachments or none. The reference is by openpyxl.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from email.message import EmailMessage

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, spreadsheet, turn, write

TASK = "d9b7c649-c975-4f53-88f5-940b29c47247"
HEAD = ["sender_name", "sender_address", "subject", "CC", "number_of_attachments"]
OWN = "Robin Vale <robin.vale@example.org>"
# Day and hour in March 2024, sender, subject, Cc, attachments
MAILS = [
    (4, 9, "Ines Calder", "ines.calder@example.com", "Minutes of Monday's call", "", ("minutes.txt",)),
    (8, 16, "Tomas Brandt", "t.brandt@example.net", "Budget for the second quarter", "mira@example.org", ("q2.csv",)),
    (5, 11, "Greta Holm", "greta.holm@example.com", "Room for the workshop", "", ()),
    (11, 8, "Omar Nasser", "omar@example.net", "Figures and a draft", "", ("draft.txt", "figures.csv")),
    (6, 7, "Ines Calder", "ines.calder@example.com", "Travel on Thursday", "greta.holm@example.com", ()),
    (
        12,
        18,
        "Greta Holm",
        "greta.holm@example.com",
        "Photos of the stand",
        "omar@example.net",
        ("a.txt", "b.txt", "c.txt"),
    ),
    (9, 13, "Lena Ostrow", "lena.ostrow@example.org", "Lunch on Friday?", "", ()),
]
ROWS = [
    [name, address, subject, cc or None, len(files)] for _, _, name, address, subject, cc, files in sorted(MAILS)[-5:]
]
PROFILE = ".thunderbird/m3k9x2ab.default-release"
SERVERS = {
    "mail.accountmanager.accounts": "account1,account2",
    "mail.accountmanager.defaultaccount": "account2",
    "mail.accountmanager.localfoldersserver": "server1",
    "mail.account.account1.server": "server1",
    "mail.account.account2.server": "server2",
    "mail.account.account2.identities": "id1",
    "mail.account.lastKey": 2,
    "mail.identity.id1.fullName": "Robin Vale",
    "mail.identity.id1.useremail": "robin.vale@example.org",
    "mail.identity.id1.valid": True,
    "mail.server.server1.type": "none",
    "mail.server.server1.hostname": "Local Folders",
    "mail.server.server1.userName": "nobody",
    "mail.server.server1.name": "Local Folders",
    "mail.server.server1.directory-rel": "[ProfD]Mail/Local Folders",
    "mail.server.server2.type": "pop3",
    "mail.server.server2.hostname": "pop.example.org",
    "mail.server.server2.userName": "robin.vale",
    "mail.server.server2.name": "robin.vale@example.org",
    "mail.server.server2.directory-rel": "[ProfD]Mail/pop.example.org",
    "mail.server.server2.login_at_startup": False,
    "mail.server.server2.check_new_mail": False,
    "mail.server.server2.download_on_biff": False,
    "mail.spotlight.firstRunDone": True,
    "mail.shell.checkDefaultClient": False,
    "mail.inappnotifications.enabled": False,
    "mail.rights.version": 1,
    "mailnews.start_page.enabled": False,
    "mailnews.start_page_override.mstone": "ignore",
    "datareporting.policy.dataSubmissionPolicyAcceptedVersion": 2,
    "datareporting.policy.dataSubmissionPolicyNotifiedTime": "1710000000000",
    "toolkit.telemetry.reportingpolicy.firstRun": False,
}


def _mbox() -> bytes:
    file = io.BytesIO()
    for number, (day, hour, name, address, subject, cc, attached) in enumerate(MAILS, 1):
        mail = EmailMessage()
        mail["Message-ID"] = f"<daily-{number}@example.org>"
        mail["Date"] = f"{day:02d} Mar 2024 {hour:02d}:15:00 +0000"
        mail["From"] = f"{name} <{address}>"
        mail["To"] = OWN
        if cc:
            mail["Cc"] = cc
        mail["Subject"] = subject
        mail.set_content(f"Hello Robin,\n\nthis is about: {subject}\n\nBest wishes\n{name}\n")
        for one in attached:
            mail.add_attachment(f"{one} of {name}\n", filename=one)
        if attached:
            mail.set_boundary(f"part-{number}")
        file.write(b"From - Fri Mar 15 10:00:00 2024\nX-Mozilla-Status: 0001\nX-Mozilla-Status2: 00000000\n")
        file.write(mail.as_bytes() + b"\n")
    return file.getvalue()


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def _profile() -> bytes:
    name = PROFILE.rpartition("/")[2]
    # The name of an installation in /usr/lib/thunderbird
    installed = "FDC34C9F024745EB"
    files = {
        ".thunderbird/profiles.ini": f"[Install{installed}]\nDefault={name}\nLocked=1\n\n"
        f"[Profile0]\nName=default-release\nIsRelative=1\nPath={name}\nDefault=1\n\n"
        "[General]\nStartWithLastProfile=1\nVersion=2\n",
        ".thunderbird/installs.ini": f"[{installed}]\nDefault={name}\nLocked=1\n",
        f"{PROFILE}/prefs.js": "".join(f'user_pref("{key}", {_value(value)});\n' for key, value in SERVERS.items()),
        f"{PROFILE}/Mail/Local Folders/daily": _mbox(),
        f"{PROFILE}/Mail/Local Folders/Trash": b"",
        f"{PROFILE}/Mail/Local Folders/Unsent Messages": b"",
        f"{PROFILE}/Mail/pop.example.org/Inbox": b"",
        f"{PROFILE}/Mail/pop.example.org/Trash": b"",
    }
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for path, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode, entry.mtime = len(data), 0o600, 1_710_500_000
            entry.uid = entry.gid = 1000
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(file.getvalue(), mtime=0)


FILES = {"thunderbird-profile.tar.gz": _profile(), "report.xlsx": spreadsheet([HEAD, *ROWS])}


def _looks(subject: str) -> Turn:
    return turn(f"I read {subject}.", click(f"[static] {subject}", pause=1))


def _counts(row: int, count: object) -> Turn:
    """After a cell that stays empty; of two tabs in a row LibreOffice carries out the second late."""
    there = keys("ctrl", "shift", "t", pause=0.5), write(f"E{row}\n", pause=1)
    return turn("I count the attachments.", *there, write(f"{count}\n", pause=0.5))


def _script(rows: list[list[object]]) -> list[Turn]:
    lines = [row if row[3] else row[:3] for row in [HEAD, *rows]]
    cells = "".join("\t".join(map(str, line)) + "\n" for line in lines)
    return [
        turn("I open the local folders.", click("[section] Local Folders", pause=1)),
        turn("They unfold.", {"name": "desktop_key_press", "arguments": {"key": "right", "pause": 1}}),
        turn("I open the folder.", click("[section] daily", pause=1)),
        *(_looks(str(subject)) for _, _, subject, _, _ in ROWS),
        turn("I open a spreadsheet.", click("[push-button] LibreOffice Calc"), when="[section] Subject: Photos"),
        turn("I write what I read.", write(cells, pause=1), when="A1 (focused)"),
        *(_counts(number, row[4]) for number, row in enumerate(rows, 2) if not row[3]),
        turn("I save it.", keys("ctrl", "s", pause=5), when="E5 - "),
        turn("On the desktop.", write("/home/user/Desktop/report.xlsx\n", pause=2)),
        DONE | {"when": "report.xlsx - LibreOffice Calc"},
    ]


RIGHT = _script(ROWS)
NEAR_MISS = _script(ROWS[::-1])
NEAR_MISS_IS = "the most recent mail is first"
SHELL = False
