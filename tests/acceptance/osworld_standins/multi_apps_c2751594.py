"""A local folder of three mails with documents; the first picture of the last one's becomes the background.

The profile is that of another task, with this folder in the place of its own. The pictures come with scikit-image; each mail has
two of them, and the mails are not stored in the order of time.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from email.message import EmailMessage
from importlib.resources import files

import docx
from docx.shared import Cm

from tests.acceptance.osworld_standins import multi_apps_d9b7c649
from tests.acceptance.osworld_standins.made import DONE, Turn, click, double_click, keys, saved, turn, write

TASK = "c2751594-0cd5-4088-be1b-b5f2f9ec97c4"
_PROFILE = "thunderbird-profile.tar.gz"
_OPENING = "[frame] Opening wall.docx"
_BELOW = "[paragraph] Number 2 of 2:"
_OPTIONS = "[dialog] PNG Options"
_LAST = "Two more for the wall"
# Day in March 2024, sender, address, subject, file, pictures
_MAILS = [
    (5, "Ines Calder", "ines.calder@example.com", "First thoughts", "thoughts.docx", ("moon", "coins")),
    (14, "Greta Holm", "greta.holm@example.com", _LAST, "wall.docx", ("coffee", "chelsea")),
    (9, "Omar Nasser", "omar@example.net", "What I found", "found.docx", ("rocket", "moon")),
]


def _picture(name: str) -> bytes:
    return files("skimage.data").joinpath(f"{name}.{'jpg' if name == 'rocket' else 'png'}").read_bytes()


def _document(subject: str, pictures: tuple[str, ...]) -> bytes:
    document = docx.Document()
    document.add_heading(subject, 1)
    for number, name in enumerate(pictures, 1):
        document.add_paragraph(f"Number {number} of {len(pictures)}:")
        document.add_picture(io.BytesIO(_picture(name)), width=Cm(9))
    return saved(document)


def _notes() -> bytes:
    file = io.BytesIO()
    for number, (day, name, address, subject, attached, pictures) in enumerate(_MAILS, 1):
        mail = EmailMessage()
        mail["Message-ID"] = f"<notes-{number}@example.org>"
        mail["Date"] = f"{day:02d} Mar 2024 10:15:00 +0000"
        mail["From"] = f"{name} <{address}>"
        mail["To"] = multi_apps_d9b7c649.OWN
        mail["Subject"] = subject
        mail.set_content(f"Hello Robin,\n\nsee the pictures.\n\nBest wishes\n{name}\n")
        kind = "vnd.openxmlformats-officedocument.wordprocessingml.document"
        mail.add_attachment(_document(subject, pictures), maintype="application", subtype=kind, filename=attached)
        mail.set_boundary(f"part-{number}")
        file.write(b"From - Fri Mar 15 10:00:00 2024\nX-Mozilla-Status: 0001\nX-Mozilla-Status2: 00000000\n")
        file.write(mail.as_bytes() + b"\n")
    return file.getvalue()


def _with_notes(archive: bytes) -> bytes:
    """The profile with the folder of these mails in the place of its only one."""
    file = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as before, tarfile.open(fileobj=file, mode="w") as after:
        for entry in before:
            content = before.extractfile(entry)
            assert content is not None
            data = content.read()
            if entry.name.endswith("/daily"):
                entry.name, data = entry.name.removesuffix("daily") + "Notes", _notes()
            entry.size = len(data)
            after.addfile(entry, io.BytesIO(data))
    return gzip.compress(file.getvalue(), mtime=0)


FILES = {
    _PROFILE: _with_notes(multi_apps_d9b7c649.FILES[_PROFILE]),
    "background.png": _picture("coffee"),
}


def _asked(**where: object) -> Turn:
    return {"name": "desktop_mouse_right_click", "arguments": {"pause": 1, **where}}


def _hung(middle: int) -> list[Turn]:
    """The picture that is at this height of the screen becomes the background."""
    local, found = "[section] Local Folders", "[label] found.png"
    return [
        turn("I open the local folders.", click(local, pause=1), when=local),
        turn("They unfold.", {"name": "desktop_key_press", "arguments": {"key": "right", "pause": 1}}),
        turn("I open the folder.", click("[section] Notes", pause=1), when="[section] Notes"),
        turn("I read the last mail.", click(f"[static] {_LAST}", pause=1), when=f"[static] {_LAST}"),
        turn("I open what is attached.", click("[push-button] wall.docx", pause=1), when="[push-button] wall.docx"),
        turn("Not saved, but opened.", click([_OPENING, "[radio-button] Open with"], pause=1.5), when=_OPENING),
        turn("In Writer.", click([_OPENING, "[push-button] OK"], pause=2), when="[radio-button] Open with (on"),
        turn("I ask what can be done with it.", _asked(x=800, y=middle), when=_BELOW),
        turn("I save it.", click("[menu-item] Save Image...", pause=1), when="[menu-item] Save Image..."),
        turn(
            "In the home folder.",
            keys("ctrl", "a", pause=0.5),
            write("/home/user/found.png", pause=1),
            when="[file-chooser]",
        ),
        turn("There.", click(["[file-chooser]", "[push-button] Save"], pause=2), when="[text] /home/user/found.png"),
        turn("As it is.", click([_OPTIONS, "[push-button] OK"], pause=2), when=_OPTIONS),
        turn("I open the file manager.", click("[push-button] Files", pause=2)),
        turn("I look at it.", double_click(["[frame] Home", found], pause=2), when=found),
        turn("I hang it up.", keys("ctrl", "f8", pause=3), when="[frame] found.png"),
        DONE,
    ]


RIGHT = _hung(440)
NEAR_MISS = _hung(705)
NEAR_MISS_IS = "the document's second picture is the background"
SHELL = False
