"""Guest images that users define: names, what is kept of them, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from desktop_image import GuestBuildError, Release
from desktop_image import define as defined
from desktop_image.cache import guest_cache_folder
from desktop_image.images import Image, forget, image_named, image_names
from desktop_image.root import guest_image_name, layer_names


def define(name: str, profile: str, release: Release, **given: Any) -> Image:
    """Makes an image, without building it."""
    with defined(name, profile, release, **given):
        pass
    return image_named(name)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return guest_cache_folder()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "fonts").mkdir()
    for name in ("fonts/a.ttf", "a.deb", "run.sh", "keys.gpg"):
        (tmp_path / name).write_text(name)
    return tmp_path


def test_an_image_is_kept_with_all_that_it_is_made_from(files: Path) -> None:
    release = Release("trixie", "http://archive.example/debian main contrib", files / "keys.gpg")
    packages = ["vim", "jq=1.6", str(files / "a.deb")]
    define("mine", "office", release, packages=packages, fonts=[files / "fonts"], scripts=[files / "run.sh"])
    for name in ("fonts/a.ttf", "a.deb", "run.sh", "keys.gpg"):
        (files / name).unlink()

    image = image_named("mine")

    assert (image.name, image.profile, image.release.suite) == ("mine", "office", "trixie")
    assert image.release.mirror == "http://archive.example/debian main contrib"
    assert image.release.keyring is not None
    assert image.release.keyring.read_text() == "keys.gpg"
    assert image.release.sources() == (
        f"deb [signed-by={image.release.keyring}] http://archive.example/debian trixie main contrib\n"
    )
    assert image.extension is not None
    assert image.extension.packages == ("vim", "jq=1.6")
    kept = {
        str(path.relative_to(image.extension.folder)) for path in image.extension.folder.rglob("*") if path.is_file()
    }
    assert kept == {"image.json", "keyring.gpg", "debs/00-a.deb", "fonts/00-fonts/a.ttf", "scripts/00-run.sh"}
    assert image_names()[-1] == "mine"
    assert {path.name for path in image.extension.folder.parent.iterdir()} == {"mine", "mine.lock"}


def test_another_release_alone_is_no_layer_more() -> None:
    image = define("newer", "core", Release("trixie"))

    assert image.extension is None
    packages, files = layer_names(image)
    assert packages.startswith("packages-core-")
    assert not {packages, files} & set(layer_names(image_named("core")))
    assert guest_image_name("newer").startswith("newer-")


@pytest.mark.parametrize("what", ["package", "deb", "font", "script", "order"])
def test_whatever_is_added_changes_the_image(files: Path, what: str) -> None:
    def digest() -> str:
        scripts = [files / "run.sh", files / "other.sh"]
        define(
            "mine",
            "core",
            Release(),
            packages=[package, str(files / "a.deb")],
            fonts=[files / "fonts"],
            scripts=scripts[::-1] if reverse else scripts,
        )
        return guest_image_name("mine")

    package, reverse = "vim", False
    (files / "other.sh").write_text("other")
    before = digest()
    assert digest() == before
    if what == "package":
        package = "nano"
    reverse = what == "order"
    for name, file in {"deb": "a.deb", "font": "fonts/a.ttf", "script": "run.sh"}.items():
        if what == name:
            (files / file).write_text("changed")

    assert digest() != before


@pytest.mark.parametrize("name", ["Mine", "a_b", "-a", "a-", "a--b", "../x", "", "a" * 41, "1a", "ä"])
def test_a_name_that_would_be_trouble_is_refused(name: str, cache: Path) -> None:
    with pytest.raises(GuestBuildError, match=f"^--name: {name!r} is not a valid image name"):
        define(name, "core", Release())
    assert not cache.exists()
    assert guest_image_name(name) == ""


def test_profiles_keep_their_names_and_are_what_is_extended() -> None:
    with pytest.raises(GuestBuildError, match=r"^--name: full is a profile's name; take another$"):
        define("full", "core", Release())
    with pytest.raises(GuestBuildError, match=r"^--name: own stands for disk images that were not built here"):
        define("own", "core", Release())
    with pytest.raises(
        GuestBuildError, match=r"^there is no guest profile 'huge' that an image could extend: choose one of core,"
    ):
        define("mine", "huge", Release())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"packages": ["Vim Tiny"]}, "--package Vim Tiny: neither a package's name nor a file that ends with .deb"),
        ({"packages": ["-o=x"]}, "--package -o=x: neither a package's name nor a file that ends with .deb"),
        ({"packages": ["nothing/x.deb"]}, "--package nothing/x.deb: there is no such file"),
        ({"fonts": [Path("nothing")]}, "--font nothing: there is no such folder"),
        ({"scripts": [Path("nothing.sh")]}, "--run nothing.sh: there is no such file"),
    ],
)
def test_what_is_not_there_is_named_and_an_earlier_image_stays(given: dict[str, list[Path]], sentence: str) -> None:
    define("mine", "office", Release())
    with pytest.raises(GuestBuildError) as refused:
        define("mine", "core", Release(), **given)
    assert str(refused.value) == sentence
    assert image_named("mine").profile == "office"


def test_a_missing_keyring_is_named() -> None:
    with pytest.raises(GuestBuildError, match=r"^--keyring nothing: there is no such file$"):
        define("mine", "core", Release(keyring=Path("nothing")))


@pytest.mark.parametrize("broken", ["", "{}", "[]", '{"profile": "huge"}', "\0"])
def test_a_broken_definition_is_said_and_can_be_made_again(cache: Path, broken: str) -> None:
    define("mine", "core", Release())
    kept = json.loads((cache / "images/mine/image.json").read_text())
    text = json.dumps({**kept, "profile": "huge"}) if "huge" in broken else broken
    (cache / "images/mine/image.json").write_text(text)

    with pytest.raises(
        GuestBuildError, match=r"^the stored definition of the guest image 'mine' is broken .*--name mine$"
    ):
        image_named("mine")
    assert guest_image_name("mine") == ""
    assert define("mine", "core", Release()).profile == "core"


def test_what_is_no_image_is_refused_with_those_there_are() -> None:
    define("mine", "core", Release())
    with pytest.raises(GuestBuildError) as refused:
        image_named("other")
    assert str(refused.value) == (
        "there is no guest image 'other': choose one of core, office, media, browser, full, gnome, mine, or make one:"
        " rollouts image build --name other"
    )


def test_an_image_whose_build_fails_is_not_made_and_an_earlier_one_stays(files: Path) -> None:
    define("mine", "office", Release())
    before = guest_image_name("mine")

    with pytest.raises(ZeroDivisionError), defined("mine", "core", Release(), scripts=[files / "run.sh"]) as image:
        assert image.extension is not None
        raise ZeroDivisionError

    assert guest_image_name("mine") == before
    with pytest.raises(ZeroDivisionError), defined("other", "core", Release()):
        raise ZeroDivisionError
    assert "other" not in image_names()


def test_two_processes_do_not_make_one_image_at_once() -> None:
    with defined("mine", "core", Release()):
        with pytest.raises(GuestBuildError, match=r"^another process is making or removing the image 'mine' now"):
            define("mine", "office", Release())
        define("other", "office", Release())
    assert image_named("mine").profile == "core"


def test_nothing_is_left_of_an_image_that_is_forgotten(cache: Path) -> None:
    define("mine", "core", Release())
    folder = next(cache.rglob("mine"))
    forget("mine")
    assert list(folder.parent.iterdir()) == []


def test_what_is_no_folder_of_an_image_is_not_removed(cache: Path, tmp_path: Path) -> None:
    define("mine", "core", Release())
    folder = next(cache.rglob("mine"))
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(GuestBuildError, match=r"cannot be changed: .*symbolic link"):
        forget("mine")
    assert list((tmp_path / "elsewhere").iterdir())


REMOVE_AS_ANOTHER = """
import os
from desktop_image import GuestBuildError, cache
os.setresuid(65534, 65534, 65534)
for ask in (cache.is_used, cache.remove):
    try:
        ask("packages-0123456789abcdef")
    except GuestBuildError as error:
        print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which needs root")
@pytest.mark.parametrize(("mode", "times"), [(0o600, 2), (0o644, 1)])  # whether the other may look at its locks
def test_another_users_cache_is_said_to_be_his(monkeypatch: pytest.MonkeyPatch, mode: int, times: int) -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are for their user alone
        Path(folder).chmod(0o755)
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        guest_cache_folder().mkdir(parents=True)
        (guest_cache_folder() / "packages-0123456789abcdef.used").touch(mode)
        said = subprocess.run([sys.executable, "-c", REMOVE_AS_ANOTHER], capture_output=True, text=True, check=False)
        sentence = f"{guest_cache_folder()} belongs to another user; only that user can delete its contents"
        assert said.stdout.splitlines() == [sentence] * times
