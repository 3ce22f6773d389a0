"""The lower layer of a guest image: Debian's packages, from mmdebstrap, and Python packages that Debian lacks."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from desktop_image import build_programs, mmdebstrap
from desktop_image.errors import GuestBuildError
from desktop_image.profiles import PROFILES
from desktop_image.release import Release

RECIPE = Path(__file__).parent / "recipe"
CUSTOMIZE = RECIPE / "customize.sh"
DPKG_SETTINGS = RECIPE / "dpkg.cfg"
REQUIREMENTS = RECIPE / "requirements.txt"
_VERSION = 2
"""Of what this module does beside the recipe: a higher number has every image built anew."""
WITHOUT_SYNC = Path("/usr/share/mmdebstrap/hooks/eatmydata")
"""Installs packages without waiting for the disk after each, in a third of the time. It needs `dpkg-architecture`."""


def digest(profile: str, release: Release) -> str:
    """Returns an id of everything this layer is made from, except the versions that the release has today."""
    recipe = [(file.name, file.read_text()) for file in sorted(RECIPE.iterdir())]
    made_from = [_VERSION, release.suite, release.mirror, PROFILES[profile], recipe]
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:16]


def build(profile: str, release: Release, target: Path, progress: Callable[[str], None]) -> None:
    """Fills `target`, which must not exist; its owners are the guest's own ids.

    Raises:
        GuestBuildError: A tool is missing, or a step fails.
    """
    options = [
        "--variant=apt",
        # Only for dpkg: mmdebstrap's own option also filters the first packages, which costs more than it saves.
        f'--setup-hook=install -D -m 644 {shlex.quote(str(DPKG_SETTINGS))} "$1/etc/dpkg/dpkg.cfg.d/guest"',
        f"--include={','.join(PROFILES[profile])}",
        f"--customize-hook={CUSTOMIZE}",
    ]
    if WITHOUT_SYNC.is_dir() and shutil.which("dpkg-architecture"):
        options.append(f"--hook-dir={WITHOUT_SYNC}")
    mmdebstrap.run(f"profile {profile!r}", target, options, progress, release)
    progress("Installing Python packages")
    python = (target / "usr/bin/python3").readlink().name  # python3.11
    packages = f"usr/local/lib/{python}/dist-packages"
    _install_python_packages(python.removeprefix("python"), target / packages)
    compiling = ["chroot", str(target), "python3", "-m", "compileall", "-q", f"/{packages}"]
    build_programs.call(compiling, "compiling the Python packages failed")
    _close_to_others(target)


def _close_to_others(target: Path) -> None:
    """Lets nobody but its owner write to a file: one that a user may change would make the user's desktop count as altered.

    uv leaves a lock like that beside the packages.
    """
    for folder, _folders, files in os.walk(target):
        for name in files:
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
                path.chmod(stat.S_IMODE(mode) & ~stat.S_IWOTH)


def _install_python_packages(version: str, target: Path) -> None:
    uv = shutil.which("uv") or shutil.which(Path(sys.prefix).parent / ".uv" / "bin" / "uv")
    pip = next((python for python in (sys.executable, "/usr/bin/python3") if _has_pip(python)), None)
    if uv:
        command = [uv, "pip", "install", "--quiet", "--python-version", version]
    elif pip:
        command = [pip, "-m", "pip", "install", "--quiet", "--ignore-installed", "--disable-pip-version-check"]
    else:
        raise GuestBuildError("neither uv nor pip is installed: run 'apt-get install python3-pip', then try again")
    options = ["--no-deps", "--require-hashes", "--requirement", str(REQUIREMENTS), "--target", str(target)]
    target.parent.mkdir(parents=True, exist_ok=True)
    # uv leaves its locks there. What a killed build leaves in the image's part is removed with it.
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary_folder:
        failure = "installing the guest's Python packages failed"
        build_programs.call([*command, *options], failure, variables={"TMPDIR": temporary_folder})


def _has_pip(python: str) -> bool:
    completed_process = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False)  # noqa: S603
    return completed_process.returncode == 0
