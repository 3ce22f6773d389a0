"""The guest images by name: the profiles, and those that users extended and named.

A user's extension is kept beside the layers, so that an image can be built again when its sources have changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from desktop_image.cache import guest_cache_folder
from desktop_image.errors import GuestBuildError
from desktop_image.locks import locked
from desktop_image.profiles import PROFILES
from desktop_image.release import BOOKWORM, Release

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST_NAME = 40
EXTERNAL_IMAGE_NAME = "own"
"""Used as the image's name for facts about an image that was not built here."""
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+~:-]+)?")
_DEFINITION = "image.json"
_KEYRING = "keyring.gpg"
DEBS, FONTS, SCRIPTS = "debs", "fonts", "scripts"
"""Folders of what a user adds."""


@dataclass(frozen=True, slots=True)
class Extension:
    """What a user adds to a profile."""

    folder: Path
    """Contains `DEBS`, `FONTS` and `SCRIPTS`, each with what the user gave, in order."""
    packages: tuple[str, ...]
    """Packages from the release."""

    def digest(self) -> str:
        """Returns an id of its content, except the versions that the release has today."""
        made_from = hashlib.sha256(json.dumps(self.packages).encode())
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            inside = path.relative_to(self.folder)
            if inside.parts[0] in {DEBS, FONTS, SCRIPTS}:
                made_from.update(b"\0" + os.fsencode(inside) + b"\0")
                with path.open("rb") as file:
                    made_from.update(hashlib.file_digest(file, "sha256").digest())
        return made_from.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Image:
    """A guest image, built or not."""

    name: str
    profile: str
    release: Release = BOOKWORM
    extension: Extension | None = None


def image_named(name: str) -> Image:
    """Returns the image of this name.

    Raises:
        GuestBuildError: It does not exist on this machine, or its stored definition is broken.
    """
    if name in PROFILES:
        return Image(name, name)
    folder = _folder(name) if _NAME.fullmatch(name) else None
    if folder is None or not folder.is_dir():
        suggestion = f", or make one: rollouts image build --name {name}" if folder else ""
        raise GuestBuildError(f"there is no guest image {name!r}: choose one of {', '.join(image_names())}{suggestion}")
    return _read(name, folder)


def _read(name: str, folder: Path) -> Image:
    try:
        kept = json.loads((folder / _DEFINITION).read_text(encoding="utf-8"))
        release = Release(kept["suite"], kept["mirror"], folder / _KEYRING if kept["has_keyring"] else None)
        extension = Extension(folder, tuple(kept["packages"]))
        if kept["profile"] not in PROFILES:
            raise ValueError(f"there is no profile {kept['profile']!r}")
        return Image(name, kept["profile"], release, extension if kept["has_additions"] else None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GuestBuildError(
            f"the stored definition of the guest image {name!r} is broken ({error}): make it again:"
            f" rollouts image build --name {name}"
        ) from error


def image_names() -> list[str]:
    """Returns the names of all images here: the profiles, then those that users extended."""
    extended_names = sorted(path.name for path in _folder("x").parent.glob("*") if _NAME.fullmatch(path.name))
    return [*PROFILES, *extended_names]


@contextmanager
def define(
    name: str,
    profile: str,
    release: Release,
    *,
    packages: Sequence[str] = (),
    fonts: Sequence[Path] = (),
    scripts: Sequence[Path] = (),
) -> Iterator[Image]:
    """Defines an image, which exists under its name once the block ends without error; until then, an old one stays.

    Args:
        name: The image's name.
        profile: The profile that it extends.
        release: The release that its packages come from.
        packages: Names, ``NAME=VERSION`` or paths of .deb files.
        fonts: Folders of fonts.
        scripts: Run in the guest as root after everything else is installed, in this order.

    Raises:
        GuestBuildError: An argument is wrong; one sentence says which.
    """
    _check(name, profile)
    named = [package for package in packages if not package.endswith(".deb")]
    for package in named:
        if not _PACKAGE.fullmatch(package):
            raise GuestBuildError(f"--package {package}: neither a package's name nor a file that ends with .deb")
    given = {
        DEBS: [("--package", Path(package)) for package in packages if package.endswith(".deb")],
        FONTS: [("--font", path) for path in fonts],
        SCRIPTS: [("--run", path) for path in scripts],
    }
    folder = _folder(name)
    new = folder.with_name(f".{name}.new")
    with _stored(folder), _alone(folder):
        shutil.rmtree(new, ignore_errors=True)
        try:
            new.mkdir()
            for kind, paths in given.items():
                for number, (option, path) in enumerate(paths):
                    _copy(option, path, new / kind / f"{number:02d}-{path.name}", is_folder=kind == FONTS)
            if release.keyring is not None:
                _copy("--keyring", release.keyring, new / _KEYRING, is_folder=False)
            definition = {
                "profile": profile,
                "suite": release.suite,
                "mirror": release.mirror,
                "has_keyring": release.keyring is not None,
                "packages": named,
                "has_additions": bool(named or any(given.values())),
            }
            (new / _DEFINITION).write_text(json.dumps(definition, indent=2) + "\n", encoding="utf-8")
            yield _read(name, new)
            shutil.rmtree(folder, ignore_errors=True)
            new.rename(folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)


def check_own(name: str) -> None:
    """Checks that a user made an image, even if its stored definition is broken.

    Raises:
        GuestBuildError: The image does not exist, or it comes with this project.
    """
    if name in PROFILES:
        raise GuestBuildError(
            f"--remove: {name} is a profile, which comes with this project; --prune removes old layers"
        )
    if not _NAME.fullmatch(name) or not _folder(name).is_dir():
        raise GuestBuildError(f"--remove: there is no guest image {name!r} of your own; --list names what there is")


def forget(name: str) -> None:
    """Removes the stored definition of a user's image; its layers stay.

    Raises:
        GuestBuildError: It cannot be removed.
    """
    folder = _folder(name)
    gone = folder.with_name(f".{name}.new")
    with _stored(folder), _alone(folder):
        shutil.rmtree(gone, ignore_errors=True)
        folder.rename(gone)
        shutil.rmtree(gone)
        _lock_file(folder).unlink()


def remove_dead_changes(found: Callable[[Path], None]) -> None:
    """Removes the temporary folders that killed processes left when they made or removed images.

    Args:
        found: Called with each before it is removed.

    Raises:
        GuestBuildError: They cannot be removed.
    """
    for new in sorted(_folder("x").parent.glob(".*.new")):
        folder = new.with_name(new.name.removeprefix(".").removesuffix(".new"))
        with _stored(folder), locked(_lock_file(folder)) as alone:
            if alone and new.is_dir():
                found(new)
                shutil.rmtree(new)


@contextmanager
def _stored(folder: Path) -> Iterator[None]:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise GuestBuildError(
            f"the guest image cannot be changed: {error.filename or folder}: {error.strerror or error}"
        ) from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Raises if another process is making or removing an image of the same name."""
    with locked(_lock_file(folder)) as alone:
        if not alone:
            raise GuestBuildError(
                f"another process is making or removing the image {folder.name!r} now; try again when it is done"
            )
        yield


def _check(name: str, profile: str) -> None:
    if profile not in PROFILES:
        raise GuestBuildError(
            f"there is no guest profile {profile!r} that an image could extend: choose one of {', '.join(PROFILES)}"
        )
    if name in PROFILES:
        raise GuestBuildError(f"--name: {name} is a profile's name; take another")
    if name == EXTERNAL_IMAGE_NAME:
        raise GuestBuildError(f"--name: {name} stands for disk images that were not built here; take another")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise GuestBuildError(
            f"--name: {name!r} is not a valid image name: small letters and digits, with - between them,"
            f" {_LONGEST_NAME} at most, a letter first"
        )


def _copy(option: str, source: Path, target: Path, *, is_folder: bool) -> None:
    if not (source.is_dir() if is_folder else source.is_file()):
        raise GuestBuildError(f"{option} {source}: there is no such {'folder' if is_folder else 'file'}")
    target.parent.mkdir(exist_ok=True)
    if is_folder:
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _folder(name: str) -> Path:
    return guest_cache_folder() / "images" / name
