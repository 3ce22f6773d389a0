"""The top layer of an image that a user extended: packages, fonts, and the changes made by the user's scripts.

This machine's apt fetches the packages that the guest lacks, by the guest's list of packages. Everything else runs
inside the guest's root, as the root of its user namespace: scripts of packages and users cannot reach anything outside.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from desktop_image import build_programs, packages_layer
from desktop_image.cache import ProgressCallback
from desktop_image.errors import GuestBuildError
from desktop_image.images import DEBS, FONTS, SCRIPTS, Extension
from desktop_image.release import Release

LAYER = "layer"
"""The layer's name in the part's folder."""
REPOSITORY = Path(__file__).parents[1]
_EXTEND = Path(__file__).parent / "extend.sh"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_DEBIAN = "http://deb.debian.org/debian"


def digest(extension: Extension, below: str) -> str:
    """Returns an id of this layer's content, on top of layers with the digest `below`."""
    return hashlib.sha256("\0".join((extension.digest(), below, _EXTEND.read_text())).encode()).hexdigest()[:16]


def build(
    extension: Extension, release: Release, lower: Sequence[Path], target: Path, progress: ProgressCallback
) -> None:
    """Fills `target`, which must not exist, with `LAYER`; owners are shifted like those of the layers below.

    Args:
        extension: What is added.
        release: The release that packages come from.
        lower: The layers below, topmost first.
        target: The part's folder.
        progress: Called with each step.

    Raises:
        GuestBuildError: A package does not exist, a script fails, or the machine lacks something.
    """
    given, fetched = target / "given", target / "fetched"  # what a killed build leaves is removed with its target
    for folder in (target, given, fetched, *(given / kind for kind in (DEBS, FONTS, SCRIPTS))):
        folder.mkdir()
    debs = sorted((extension.folder / DEBS).glob("*.deb"))
    if debs or extension.packages:
        progress("Fetching the added packages")
        _fetch([*extension.packages, *map(str, debs)], release, lower[-1], fetched, given / DEBS)
    for kind in (FONTS, SCRIPTS):
        if (extension.folder / kind).is_dir():
            shutil.copytree(extension.folder / kind, given / kind, dirs_exist_ok=True)
    shutil.copytree(packages_layer.RECIPE, given / "recipe")
    shutil.copyfile(_EXTEND, given / _EXTEND.name)
    _let_everybody_read(given)
    _apply(given, lower, target, progress)
    for done in (given, fetched, target / "work", target / "root"):
        shutil.rmtree(done)


def _fetch(wanted: Sequence[str], release: Release, packages: Path, apt_folder: Path, target: Path) -> None:
    """Downloads packages and the dependencies that the guest lacks; apt's lists are kept in the folder `apt_folder`."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (apt_folder / name).mkdir(parents=True)
    default = f"deb [signed-by={_KEYRING}] {_DEBIAN} {release.suite} main\n"
    (apt_folder / "sources.list").write_text(release.sources() or default)
    settings = {
        "Dir::State": apt_folder / "state",
        "Dir::State::status": packages / "var/lib/dpkg/status",
        "Dir::Cache": apt_folder / "cache",
        "Dir::Etc::SourceList": apt_folder / "sources.list",
        "Dir::Etc::SourceParts": "-",
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
        "Acquire::Languages": "none",
        "Acquire::Retries": "2",
    }
    apt = ["apt-get", "-q", "-y", *(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))]
    english = {"LC_ALL": "C"}
    build_programs.call([*apt, "update"], "asking what packages there are failed", variables=english)
    fetching = [*apt, "install", "--download-only", *wanted]
    build_programs.call(fetching, "fetching the added packages failed", variables=english)
    for file in (apt_folder / "cache/archives").glob("*.deb"):
        shutil.move(file, target / file.name)
    for file in map(Path, wanted):
        if file.suffix == ".deb":
            shutil.copyfile(file, target / file.name)


def _let_everybody_read(folder: Path) -> None:
    """Makes a folder readable for all, since the guest's root has no rights outside."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.suffix == ".sh" or path.parent.name == SCRIPTS else 0o644)


def _apply(given: Path, lower: Sequence[Path], target: Path, progress: ProgressCallback) -> None:
    command = [
        *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *(sys.executable, "-m", "desktop_image", "extension", str(target), str(given), *map(str, lower)),
    ]
    last: deque[str] = deque(maxlen=5)
    with build_programs.running(command, folder=REPOSITORY) as program:
        assert program.stdout is not None  # noqa: S101
        for line in program.stdout:
            if line.strip():
                last.append(line.strip())
                progress(line.strip())
    if program.returncode:
        raise GuestBuildError(f"the image could not be extended: {' | '.join(last) or 'no reason was given'}")
