"""An empty profile of Thunderbird: no account, so that it begins with the page that sets one up."""

import io
import tarfile

from tests.acceptance.osworld_standins.made import DONE, Turn, click, turn, write

TASK = "15c3b339-88f7-4a86-ab16-e71c58dcb01e"
_FOLDER = "blank.default-release"
_PROFILES = f"""[InstallFDC34C9F024745EB]
Default={_FOLDER}
Locked=1

[Profile0]
Name=default-release
IsRelative=1
Path={_FOLDER}
Default=1

[General]
StartWithLastProfile=1
Version=2
"""
_SETTINGS = """// Mozilla User Preferences
user_pref("app.donation.eoy.version.viewed", 999);
user_pref("browser.search.region", "US");
user_pref("datareporting.policy.dataSubmissionPolicyAcceptedVersion", 2);
user_pref("datareporting.policy.dataSubmissionPolicyNotifiedTime", "1700000000000");
user_pref("mail.rights.version", 1);
user_pref("mailnews.start_page_override.mstone", "ignore");
"""


def _profile() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name in (".thunderbird", f".thunderbird/{_FOLDER}"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o700
            archive.addfile(folder)
        files = {"profiles.ini": _PROFILES, f"{_FOLDER}/prefs.js": _SETTINGS}
        for name, text in files.items():
            entry = tarfile.TarInfo(f".thunderbird/{name}")
            entry.size, entry.mode = len(text), 0o600
            archive.addfile(entry, io.BytesIO(text.encode()))
    return file.getvalue()


FILES = {"thunderbird-profile-blank.tar.gz": _profile()}


def _filled_in(address: str) -> list[Turn]:
    tab = "[page-tab] Account Setup"
    return [
        turn("I go to the page, another may be in front.", click(tab, pause=3), when=tab),
        turn("I go to the page, should another have come.", click(tab, pause=2), when=tab),
        turn(
            "I give the address.",
            click("[entry] Email address", pause=0.5),
            write(address, pause=1),
            when="[entry] Email address",
        ),
        turn("I give the password.", click("[password-text] Password", pause=0.5), write("password", pause=1)),
        DONE,
    ]


RIGHT = _filled_in("anonym-x2024@outlook.com")
NEAR_MISS = _filled_in("anonym-2024x@outlook.com")
NEAR_MISS_IS = "two characters of the address are swapped"
SHELL = False
