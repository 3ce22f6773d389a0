"""The profile of another task, with two mails in the inbox of its account."""

from __future__ import annotations

import gzip
import io
import tarfile
from email.message import EmailMessage

from tests.acceptance.osworld_standins import multi_apps_d9b7c649
from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, turn, write

TASK = "9bc3cc16-074a-45ac-9bdc-b2a362e1daf3"
_NAME = "thunderbird-profile.tar.gz"
_WELCOME, _TEST = "歡迎使用新的 Outlook.com 帳戶", "A Test E-mail"
# Subject, sender, text
_MAILS = [
    (_WELCOME, "Outlook.com <welcome@example.com>", "您好，\n\n新的信箱已經可以使用。\n"),
    (_TEST, "Ines Calder <ines.calder@example.com>", "Hello Robin,\n\ndoes this reach you?\n\nBest wishes\nInes\n"),
]


def _inbox() -> bytes:
    file = io.BytesIO()
    for number, (subject, sender, text) in enumerate(_MAILS, 1):
        mail = EmailMessage()
        mail["Message-ID"] = f"<inbox-{number}@example.org>"
        mail["Date"] = f"{number:02d} Mar 2024 09:15:00 +0000"
        mail["From"] = sender
        mail["To"] = multi_apps_d9b7c649.OWN
        mail["Subject"] = subject
        mail.set_content(text)
        file.write(b"From - Fri Mar 15 10:00:00 2024\nX-Mozilla-Status: 0001\nX-Mozilla-Status2: 00000000\n")
        file.write(mail.as_bytes() + b"\n")
    return file.getvalue()


def _with_inbox(archive: bytes) -> bytes:
    """The profile with these mails in the inbox."""
    file = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as before, tarfile.open(fileobj=file, mode="w") as after:
        for entry in before:
            content = before.extractfile(entry)
            assert content is not None
            data = _inbox() if entry.name.endswith("/Inbox") else content.read()
            entry.size = len(data)
            after.addfile(entry, io.BytesIO(data))
    return gzip.compress(file.getvalue(), mtime=0)


FILES = {_NAME: _with_inbox(multi_apps_d9b7c649.FILES[_NAME])}


def _saved(*chosen: Turn, button: str) -> list[Turn]:
    account = "[section] robin.vale@example.org"
    return [
        turn("I choose the account.", click(account, pause=1), when=account),
        turn("It unfolds.", {"name": "desktop_key_press", "arguments": {"key": "right", "pause": 1}}),
        turn("I open its inbox.", click("[section] Inbox", pause=1), when="[section] Inbox"),
        # Mails that are still being indexed when a folder is opened do not always appear until it is opened again.
        turn("I look into the trash.", click("[section] Trash", pause=2)),
        turn("I open the inbox again.", click("[section] Inbox", pause=1)),
        turn("I choose a mail.", click(f"[static] {_TEST}", pause=1), when=f"[static] {_TEST}"),
        *chosen,
        turn("I save.", keys("ctrl", "s", pause=2)),
        turn("In the home folder.", click(["[file-chooser]", "[label] Home"], pause=1), when="[file-chooser]"),
        turn("A new folder.", click(["[file-chooser]", "] Create Folder"], pause=1)),
        turn("It has this name.", write("emails.bak\n", pause=1)),
        turn("There.", click(["[file-chooser]", f"[push-button] {button}"], pause=3), when="emails.bak"),
        DONE,
    ]


RIGHT = _saved(turn("I choose all.", keys("ctrl", "a", pause=1)), button="Open")
NEAR_MISS = _saved(button="Save")
NEAR_MISS_IS = "only one of the mails is saved there"
SHELL = False
