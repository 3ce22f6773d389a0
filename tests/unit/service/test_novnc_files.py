"""noVNC's scripts: of its folder alone, by no other name, and one sentence where it is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollout_tasks.service.lending.novnc_files import NoVNCFiles, novnc_folders
from rollout_tasks.service.lending.refusal import Refusal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "novnc"
    for name in (
        "core/rfb.js",
        "core/util/log.js",
        "vendor/pako/lib/zlib/inflate.js",
        "app/ui.js",
        "vnc.html",
        "core/notes.txt",
    ):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(f"// {name}", encoding="utf-8")
    (tmp_path / "secret.js").write_text("secret", encoding="utf-8")
    (made / "core" / "out.js").symlink_to(tmp_path / "secret.js")
    (made / "vendor" / "away").symlink_to(tmp_path)
    (made / "core" / "again.js").symlink_to(made / "core" / "rfb.js")
    (made / "core" / "folder.js").mkdir()
    return made


@pytest.mark.parametrize("name", ["core/rfb.js", "core/util/log.js", "vendor/pako/lib/zlib/inflate.js"])
def test_scripts_are_there(folder: Path, name: str) -> None:
    assert NoVNCFiles([folder.parent / "none", folder]).script(name) == f"// {name}".encode()


def test_a_link_within_the_folder_is_followed(folder: Path) -> None:
    assert NoVNCFiles([folder]).script("core/again.js") == b"// core/rfb.js"


@pytest.mark.parametrize(
    "name",
    [
        *("core/out.js", "vendor/away/secret.js", "core/folder.js", "core/none.js"),
        *("../secret.js", "core/../../secret.js", "core/./rfb.js", "core//rfb.js", "/etc/passwd", "core/.hidden.js"),
        *(
            "app/ui.js",
            "vnc.html",
            "core/notes.txt",
            "core",
            "core/",
            "",
            "core/rfb.js\n",
            "core/rfb.js\0",
            "core\\rfb.js",
        ),
    ],
)
def test_nothing_else_is(folder: Path, name: str) -> None:
    with pytest.raises(Refusal, match="noVNC has no such script") as caught:
        NoVNCFiles([folder]).script(name)
    assert caught.value.status == 404


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"noVNC is not installed .*/novnc\): apt-get install novnc") as caught:
        NoVNCFiles([tmp_path / "novnc"]).folder()
    assert caught.value.status == 501


def test_it_is_looked_for_where_programs_have_their_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_DIRS", raising=False)
    assert novnc_folders() == [Path("/usr/local/share/novnc"), Path("/usr/share/novnc")]
    monkeypatch.setenv("XDG_DATA_DIRS", "relative:/opt/data")
    assert novnc_folders() == [Path("/opt/data/novnc")]
