"""Building images: never half, never twice, nothing left behind. Small parts are built for real, packages until they fail."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from desktop_image import (
    PROFILES,
    GuestBuildError,
    Release,
    define,
    guest_root,
    image_named,
    mmdebstrap,
    packages_layer,
    root_of,
)
from desktop_image.cache import guest_cache_folder, part, remove_dead_builds
from desktop_image.disk import disk_name
from desktop_image.image_facts import facts_folder_name
from desktop_image.images import image_names
from desktop_image.locks import hold_file
from desktop_image.ownership import GUEST_ID_COUNT, GUEST_ID_SHIFT
from desktop_image.root import guest_image_name, layer_names, size_of

REPOSITORY = Path(__file__).parents[3]
WAITING = "Another process is building this image, or what a killed one started has not ended; waiting for it"
BUILDER = """
import sys, time
from pathlib import Path
from desktop_image.cache import part

def build(target):
    target.mkdir()
    (target / "first").write_text("half")
    with Path(sys.argv[1], "builds").open("a") as file:
        file.write("x")
    while not Path(sys.argv[1], "go").exists():
        time.sleep(0.01)
    (target / "second").write_text("whole")

print(part("thing-1", build, print), flush=True)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "computer-use-rollouts" / "guest"


def builder(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILDER, str(folder)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


def until(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def contents(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.suffix not in {".lock", ".used"})


@pytest.mark.slow
def test_two_who_need_the_same_part_build_it_once(cache: Path, tmp_path: Path) -> None:
    first = builder(tmp_path)
    until((tmp_path / "builds").exists, "the first builds")
    second = builder(tmp_path)
    assert second.stdout
    assert first.stdout
    assert second.stdout.readline() == f"{WAITING}\n"
    assert contents(cache) == ["thing-1.partial"]
    (tmp_path / "go").touch()
    assert first.stdout.read() == second.stdout.read() == f"{cache / 'thing-1'}\n"
    assert (first.wait(), second.wait()) == (0, 0)
    assert (tmp_path / "builds").read_text() == "x"
    assert contents(cache) == ["thing-1"]
    assert (cache / "thing-1" / "second").read_text() == "whole"


def test_what_a_killed_build_left_is_removed_by_the_next_one(cache: Path, tmp_path: Path) -> None:
    killed = builder(tmp_path)
    until((tmp_path / "builds").exists, "it builds")
    killed.kill()
    killed.communicate()
    assert contents(cache) == ["thing-1.partial"]
    part("other-1", lambda target: target.mkdir(), str)
    assert contents(cache) == ["other-1"]


def test_a_build_in_progress_is_left_alone_by_others(cache: Path, tmp_path: Path) -> None:
    going_on = builder(tmp_path)
    until((tmp_path / "builds").exists, "it builds")
    part("other-1", lambda target: target.mkdir(), str)
    assert contents(cache) == ["other-1", "thing-1.partial"]
    (tmp_path / "go").touch()
    going_on.communicate()
    assert contents(cache) == ["other-1", "thing-1"]


def test_a_failed_build_leaves_nothing(cache: Path) -> None:
    def build(target: Path) -> None:
        target.mkdir()
        raise GuestBuildError("it did not work")

    with pytest.raises(GuestBuildError, match="it did not work"):
        part("thing-1", build, str)
    assert contents(cache) == []


def test_who_waits_for_another_build_can_give_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a VM host that is stopped meanwhile."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = guest_cache_folder()
    cache.mkdir(parents=True)
    held = hold_file(cache / "thing-1.lock")
    assert held is not None
    said: list[str] = []

    def progress(sentence: str) -> None:
        said.append(sentence)
        if len(said) == 2:
            raise InterruptedError("stopped")

    try:
        with pytest.raises((InterruptedError, GuestBuildError), match="stopped"):
            part("thing-1", lambda target: target.mkdir(), progress)
    finally:
        os.close(held)
    assert set(said) == {WAITING}


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(GuestBuildError, match=r"cannot be stored: .*file.*: Not a directory"):
        part("thing-1", lambda target: target.mkdir(), str)


def test_a_folder_that_cannot_be_copied_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "nowhere").symlink_to(tmp_path / "gone")

    def build(partial: Path) -> None:
        shutil.copytree(tmp_path / "source", partial)

    with pytest.raises(GuestBuildError, match=r"cannot be built: .*: .*nowhere.*No such file or directory"):
        part("a-part", build, str)


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(
        GuestBuildError, match="no guest image 'huge': choose one of core, office, media, browser, full, gnome"
    ):
        guest_root("huge")


def test_what_mmdebstrap_complains_of_is_said_and_nothing_is_left(cache: Path) -> None:
    with (
        pytest.raises(GuestBuildError, match=r"could not build profile 'core': .*no-such-release"),
        define("broken", "core", Release("no-such-release")) as image,
    ):
        root_of(image)
    assert contents(cache) == ["images"]


def test_what_a_program_of_the_recipe_says_before_it_fails_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mmdebstrap itself names only the script."""
    program = tmp_path / "mmdebstrap"
    said = ["Unpacking gimp (3.0.4) ...", "Gtk-WARNING: cannot open display", "E: command failed: customize.sh"]
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in said) + "exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    with pytest.raises(GuestBuildError, match=r"customize.sh \(before that: Gtk-WARNING: cannot open display\)$"):
        mmdebstrap.run("this", tmp_path / "target", [], str)


def test_root_who_may_not_mount_is_told_what_that_is_about(cache: Path) -> None:
    lacking = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    for what in ([], ["--disk"]):
        command = [*lacking, sys.executable, "scripts/build_guest.py", *what]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (2, "")
        assert "needs the right to make namespaces and to mount, which root lacks in a container" in done.stderr
        assert len(done.stderr.splitlines()[-1]) < 300
    assert contents(cache) == []


@pytest.mark.slow
def test_a_package_that_is_not_there_is_named_and_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROFILES, "core", ("no-such-package-anywhere",))
    with pytest.raises(GuestBuildError, match="no-such-package-anywhere"):
        guest_root("core")
    assert contents(cache) == []


def test_a_missing_tool_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(GuestBuildError, match="run 'apt-get install mmdebstrap'"):
        guest_root("core")


@pytest.mark.slow
def test_a_killed_build_takes_its_processes_and_mounts_with_it(cache: Path, tmp_path: Path) -> None:
    """`scripts/build_guest.py` is killed in the middle of unpacking; whatever it started dies, and the cache stays clean."""
    (temporary := tmp_path / "temporary").mkdir()

    def of_this_build() -> list[str]:
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    command = (process / "cmdline").read_text().replace("\0", " ")
                except OSError:
                    continue
                if str(cache) in command:
                    found.append(command)
        return found

    command = [sys.executable, "scripts/build_guest.py", "--profile", "core"]
    building = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    name = f"packages-core-{packages_layer.digest('core', Release())}.partial"
    try:
        until(lambda: (cache / name / "usr").exists(), "packages are unpacked")
        assert of_this_build()
        os.kill(building.pid, signal.SIGKILL)
        until(lambda: not of_this_build(), "its processes end")
    finally:
        building.kill()
        building.wait()
    assert str(cache) not in Path("/proc/self/mounts").read_text()
    assert list(temporary.iterdir()) == []

    def removed() -> bool:  # by any build; a program's files may be open for a moment after its command line is gone
        remove_dead_builds()
        return contents(cache) == []

    until(removed, "the killed build's folder is removed")


USER = """
import sys
import tempfile
from desktop_image.cache import part

part(sys.argv[1], lambda target: target.mkdir(), print)
print("using", flush=True)
sys.stdin.read()
"""


def pruned() -> dict[str, list[str]]:
    command = [sys.executable, "scripts/build_guest.py", "--prune", "--json"]
    said = json.loads(subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout)
    return {what: [Path(part["folder"]).name for part in parts] for what, parts in said.items()}


def test_outdated_parts_are_removed_unless_they_are_used_or_built(cache: Path) -> None:
    old, used, disk = f"packages-core-{'0' * 16}", f"files-{'1' * 16}", f"disk-core-{'2' * 32}-1"
    current = layer_names(image_named("core"))
    cache.mkdir(parents=True)
    for name in (old, disk, *current, "something-else"):
        (cache / name).mkdir()
        (cache / name / "file").write_text("content")
    saved = cache / f"saved-{'3' * 16}"
    saved.mkdir()
    (cache / disk / "disk.qcow2").touch()
    command = ["qemu-img", "create", "-q", "-u", "-f", "qcow2", "-F", "qcow2", "-b", str(cache / disk / "disk.qcow2")]
    subprocess.run([*command, str(saved / "disk.qcow2"), "1G"], check=True)
    user = subprocess.Popen(
        [sys.executable, "-c", USER, used], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert user.stdout
    assert user.stdout.readline() == "using\n"

    # Alphabetically: the disk goes before what was saved on it, which is outdated with it.
    assert pruned() == {"removed": [disk, old, saved.name], "in_use": [used]}
    assert contents(cache) == sorted([used, *current, "something-else"])
    user.communicate()
    assert pruned() == {"removed": [used], "in_use": []}
    assert pruned() == {"removed": [], "in_use": []}
    assert contents(cache) == sorted([*current, "something-else"])
    assert not list(cache.glob("*.used"))


def removed(name: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/build_guest.py", "--remove", name, "--json"]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_an_image_of_ones_own_is_removed_with_what_only_it_needs(cache: Path, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("true\n")
    for name, release in (("mine", "bookworm"), ("newer", "trixie"), ("newest", "trixie")):
        with define(name, "core", Release(release), scripts=[script]):
            pass
    layers = {name: layer_names(image_named(name)) for name in ("core", "mine", "newer", "newest")}
    disks = {name: disk_name(image_named(name)) for name in layers}
    facts = {name: facts_folder_name(guest_image_name(name)) for name in layers}
    older = f"additions-mine-{'0' * 16}"
    for folder in {*sum(layers.values(), ()), *disks.values(), *facts.values(), older}:
        (cache / folder).mkdir(exist_ok=True)
    there = set(contents(cache)) - {"images"}
    user = subprocess.Popen(
        [sys.executable, "-c", USER, layers["mine"][-1]],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert user.stdout
    assert user.stdout.readline() == "using\n"

    refused = removed("mine")
    assert refused.returncode == 2
    assert f"'mine' is in use ({cache / layers['mine'][-1]}): stop its VM hosts first" in " ".join(
        refused.stderr.split()
    )
    assert set(contents(cache)) - {"images"} == there
    assert "mine" in image_names()
    user.communicate()

    said = json.loads(removed("mine").stdout)
    gone = {layers["mine"][-1], disks["mine"], facts["mine"], older}
    assert {Path(part["folder"]).name for part in said["removed"]} == gone
    assert set(contents(cache)) - {"images"} == there - gone
    assert "mine" not in image_names()

    assert removed("newer").returncode == 0
    gone |= {layers["newer"][-1], disks["newer"], facts["newer"]}
    assert set(contents(cache)) - {"images"} == there - gone, "the packages of trixie are another image's, too"
    assert removed("newest").returncode == 0
    assert set(contents(cache)) - {"images"} == {*layers["core"], disks["core"], facts["core"]}
    assert not list(cache.glob("*.used"))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("core", "--remove: core is a profile, which comes with this project; --prune removes old layers"),
        ("mine", "--remove: there is no guest image 'mine' of your own; --list names what there is"),
        ("../x", "--remove: there is no guest image '../x' of your own; --list names what there is"),
    ],
)
def test_what_is_no_image_of_ones_own_is_not_removed(cache: Path, name: str, sentence: str) -> None:
    for layer in layer_names(image_named("core")):
        (cache / layer).mkdir(parents=True)
    before = contents(cache)

    said = removed(name)

    assert said.returncode == 2
    assert sentence in " ".join(said.stderr.split())
    assert contents(cache) == before


def test_the_image_belongs_to_the_guests_own_users() -> None:
    files, packages = guest_root("core").layers
    for layer in (files, packages):
        for path in (layer, layer / "etc", layer / "usr" / "lib" / "guest"):
            if path.exists():
                assert path.lstat().st_uid == GUEST_ID_SHIFT
    for path in packages.joinpath("home").rglob("*"):
        assert path.lstat().st_uid == path.lstat().st_gid == GUEST_ID_SHIFT + 1000
    assert packages.joinpath("usr/bin/sudo").stat().st_mode & 0o7777 == 0o4755
    for path in packages.joinpath("var").rglob("*"):
        assert GUEST_ID_SHIFT <= path.lstat().st_uid < GUEST_ID_SHIFT + GUEST_ID_COUNT


def test_the_image_tells_nothing_of_the_machine_that_built_it() -> None:
    packages = guest_root("core").layers[-1]
    assert packages.joinpath("etc/hostname").read_text() == "guest\n"
    assert packages.joinpath("etc/resolv.conf").read_text() == ""
    assert not list(packages.joinpath("etc/apt").glob("sources.list*/*")) + list(packages.glob("etc/apt/sources.list"))
    assert not list(packages.joinpath("var/lib/apt/lists").glob("*Packages*"))
    assert not list(packages.joinpath("tmp").iterdir())


@pytest.mark.slow
def test_images_are_listed_and_built_by_one_command() -> None:
    def run(*options: str) -> str:
        command = [sys.executable, "scripts/build_guest.py", *options]
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout

    built = json.loads(run("--profile", "core", "--json"))
    assert built["bytes"] == sum(size_of(Path(layer)) for layer in built["layers"]) > 500e6
    current = [image for image in json.loads(run("--list", "--json")) if image["current"]]
    assert "core" in {image["image"] for image in current}
    assert "GB" in run("--profile", "core")
    refused = subprocess.run(
        [sys.executable, "scripts/build_guest.py", "--profile", "huge"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: there is no guest image 'huge'")


@pytest.mark.slow
def test_python_packages_leave_nothing_among_the_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))  # an empty one: what is built leaves most

    packages_layer._install_python_packages("3.11", tmp_path / "packages")

    assert list((tmp_path / "packages").glob("*.dist-info"))
    assert list(temporary.iterdir()) == []


INSTALLER = """
import sys
from pathlib import Path
from desktop_image import packages_layer
packages_layer._install_python_packages("3.11", Path(sys.argv[1]))
"""
HANGING_UV = """#!/bin/sh
[ "$1 $2" = "pip install" ] && touch "$TMPDIR/lock" && exec sleep 1000
"""


def test_temporary_files_of_a_killed_installation_are_in_the_part_that_is_removed(tmp_path: Path) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    (programs := tmp_path / "programs").mkdir()
    (programs / "uv").write_text(HANGING_UV)
    (programs / "uv").chmod(0o755)
    target = tmp_path / "target"
    environment = {**os.environ, "TMPDIR": str(temporary), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(
        [sys.executable, "-c", INSTALLER, str(target / "lib" / "packages")],
        cwd=REPOSITORY,
        env=environment,
        start_new_session=True,
    ) as killed:
        try:
            until(lambda: bool(list(tmp_path.glob("**/lock"))), "packages are installed")
        finally:
            os.killpg(killed.pid, signal.SIGKILL)
    assert list(target.glob("**/lock"))
    assert list(temporary.iterdir()) == []
