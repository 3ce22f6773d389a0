"""Building what virtual machines boot without being root: as the root of a user namespace with lent ids."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from desktop_image import guest_disk
from desktop_image.kernel import kernel_name
from tests.other_user import FIRST_LENT, ID, OtherUser, needs_lent_ids
from tests.other_user import other_user as other_user

pytestmark = needs_lent_ids

IN_NAMESPACE = """
import sys
from desktop_image import GuestBuildError, namespace
try:
    code, last = namespace.run(["sh", "-c", sys.argv[1]], on_line=print)
except GuestBuildError as error:
    sys.exit(str(error))
print(code, last)
"""
BUILD = """
import sys
from pathlib import Path
from desktop_image import namespace
from desktop_image.cache import part

def build(target):
    target.mkdir()
    namespace.run(["sh", "-c", 'mkdir "$1/theirs" && touch "$1/theirs/file" && chown -R 7:7 "$1/theirs"', "sh", str(target)])
    if sys.argv[1] == "fail":
        raise OSError(28, "No space left on device", str(target))

part("thing-1", build, print, as_root=False)
"""

LOCKED = """
import os
import sys
from desktop_image import GuestBuildError
from desktop_image.kernel import guest_kernel

os.environ["PATH"] = f"{sys.argv[1]}:{os.environ['PATH']}"
try:
    guest_kernel(print)
except GuestBuildError as error:
    print(error)
"""


def python(user: OtherUser, code: str, *arguments: str, lends: bool = True) -> subprocess.CompletedProcess[str]:
    return user.run(".venv/bin/python", "-c", code, *arguments, seconds=60, lends=lends)


def test_a_user_is_root_of_his_own_namespace_and_owns_lent_ids(other_user: OtherUser) -> None:
    mine = other_user.home / "mine"
    done = python(other_user, IN_NAMESPACE, f"id -u; touch {mine} && chown 1000:65534 {mine} && echo done")
    assert (done.returncode, done.stdout) == (0, "0\ndone\n0 done\n"), done.stderr
    assert (mine.stat().st_uid, mine.stat().st_gid) == (FIRST_LENT + 999, FIRST_LENT + 65_533)


def test_root_of_the_namespace_has_no_rights_outside(other_user: OtherUser, tmp_path: Path) -> None:
    secret = other_user.home / "secret"
    secret.write_text("of root")
    secret.chmod(0o600)
    done = python(other_user, IN_NAMESPACE, f"cat {secret} 2>&1")
    assert done.returncode == 0
    assert "Permission denied" in done.stdout


def test_a_user_whom_no_ids_are_lent_is_told_how(other_user: OtherUser) -> None:
    done = python(other_user, IN_NAMESPACE, "true", lends=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "65536 ids in /etc/subuid: run 'sudo usermod --add-subuids" in done.stderr
    assert done.stderr.strip().endswith("visitor'")
    assert len(done.stderr.splitlines()) == 1


def test_a_failed_build_leaves_nothing_of_lent_ids(other_user: OtherUser) -> None:
    done = python(other_user, BUILD, "fail")
    assert "cannot be stored" in done.stderr
    assert not list((other_user.cache / "guest").glob("thing-1*/**"))
    assert python(other_user, BUILD, "build").returncode == 0
    assert (other_user.cache / "guest" / "thing-1" / "theirs" / "file").stat().st_uid == FIRST_LENT + 6


def test_what_a_build_runs_as_a_namespaces_root_holds_its_lock(other_user: OtherUser) -> None:
    mmdebstrap = other_user.home / "programs" / "mmdebstrap"
    mmdebstrap.parent.mkdir()
    mmdebstrap.write_text('#!/bin/sh\necho "E: "$(ls -l /proc/self/fd)\nexit 1\n')
    for path in (mmdebstrap, mmdebstrap.parent):
        path.chmod(0o755)

    done = python(other_user, LOCKED, str(mmdebstrap.parent))

    assert "mmdebstrap could not build" in done.stdout
    assert f"{other_user.cache}/guest/{kernel_name()}.lock" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_user_builds_the_disk_that_root_builds(other_user: OtherUser, tmp_path: Path) -> None:
    done = other_user.run(".venv/bin/python", "scripts/build_guest.py", "--disk", seconds=800)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Disk of guest image core" in done.stdout
    folder = other_user.cache / "guest"
    owners = {path.stat().st_uid for part in folder.glob("[dk]*-*") for path in (part, *part.rglob("*"))}
    assert owners == {ID}

    ours = guest_disk("core").image
    theirs = folder / ours.parent.name / ours.name
    there = listing(ours, tmp_path / "ours")
    assert {"100755 0 0 bash", "040755 0 0 usr", "040755 1000 1000 user"} <= set(there.splitlines())
    assert listing(theirs, tmp_path / "theirs") == there
    shutil.rmtree(tmp_path)


def listing(image: Path, raw: Path) -> str:
    """Owners, modes and names of some folders on a disk."""
    subprocess.run(["qemu-img", "convert", "-O", "raw", str(image), str(raw)], check=True)
    asked = "".join(
        f"ls -p {folder}\n" for folder in ("/", "/home", "/home/user", "/usr/bin", "/usr/lib/guest", "/var/lib")
    )
    said = subprocess.run(
        ["debugfs", "-f", "-", str(raw)], input=asked, capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split("/") for line in said.splitlines() if line.startswith("/")]
    return "\n".join(sorted(f"{mode} {owner} {group} {name}" for _, _inode, mode, owner, group, name, *_ in rows))
