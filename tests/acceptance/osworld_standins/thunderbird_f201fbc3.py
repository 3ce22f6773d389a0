"""The profile of another task, with one account, in a folder of another name."""

from __future__ import annotations

import gzip
import io
import tarfile

from tests.acceptance.osworld_standins import multi_apps_d9b7c649
from tests.acceptance.osworld_standins.made import DONE, Turn, click, turn

TASK = "f201fbc3-44e6-46fc-bcaa-432f9815454c"
_NAME = "thunderbird-profile.tar.gz"


def renamed(archive: bytes, old: str, new: str) -> bytes:
    """The archive with another text for one, in files' paths and contents."""
    file = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as before,
        tarfile.open(fileobj=file, mode="w") as after,
    ):
        for entry in before:
            content = before.extractfile(entry)
            assert content is not None
            data = content.read().replace(old.encode(), new.encode())
            entry.name, entry.size = entry.name.replace(old, new), len(data)
            after.addfile(entry, io.BytesIO(data))
    return gzip.compress(file.getvalue(), mtime=0)


FILES = {_NAME: renamed(multi_apps_d9b7c649.FILES[_NAME], "m3k9x2ab", "t5q2a5hp")}


def _unticked(box: str) -> list[Turn]:
    account, settings, page = "[section] robin.vale@example.org", "[push-button] Account Settings", "] Composition & Ad"
    return [
        turn("I choose the account.", click(account, pause=2), when=account),
        turn("I open its settings.", click(settings, pause=2), when=settings),
        turn("I look at how mail is written.", click(page, pause=2), when=page),
        turn("I do not want this.", click(f"[check-box] {box}", pause=2), when=f"[check-box] {box} (on"),
        DONE,
    ]


RIGHT = _unticked("Automatically quote the original message when replying")
NEAR_MISS = _unticked("Compose messages in HTML format")
NEAR_MISS_IS = "another box of that page: messages are composed as plain text, quotes stay"
SHELL = False
