"""Images that users extend: packages, fonts and scripts of their own on top of a profile."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from desktop_image import Release, extension_layer, guest_image_name, guest_root
from desktop_image.cache import guest_cache_folder, remove
from desktop_image.disk import put_layer_on
from desktop_image.images import image_named, image_names
from desktop_image.root import layer_names
from rollout_tasks.environments.osworld import accessibility_tree
from tests.conftest import REPOSITORY
from tests.desktops import in_guest, needs_local_desktops
from tests.integration.desktop_image.conftest import remove_image
from vm_pool.providers.local import LocalProvider

pytestmark = needs_local_desktops

NAME = "test-own-image"
SCRIPT = """#!/bin/sh
set -eu
test -x /usr/bin/ourprogram
rm /usr/share/backgrounds/guest.png
rm -r /usr/share/xfce4/backdrops 2>/dev/null || true
install -o user -g user -m 600 /dev/null /home/user/.ours
head -1 /proc/self/uid_map >/etc/ours
"""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """Where an image's extension is; the image is gone afterwards."""
    package = tmp_path / "package"
    for folder in ("DEBIAN", "usr/bin", "usr/share/applications"):
        (package / folder).mkdir(parents=True)
    (package / "DEBIAN/control").write_text(
        "Package: ourprogram\nVersion: 1\nArchitecture: all\nMaintainer: t <t@example.org>\nDepends: figlet\nDescription: x\n"
    )
    (package / "usr/bin/ourprogram").write_text("#!/bin/sh\nexec figlet -f term ours\n")
    (package / "usr/bin/ourprogram").chmod(0o755)
    (package / "usr/share/applications/ourprogram.desktop").write_text(
        "[Desktop Entry]\nType=Application\nName=Ours\nExec=ourprogram\n"
    )
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(package), str(tmp_path / "ours.deb")], check=True)
    (tmp_path / "fonts").mkdir()
    fonts = guest_root("core").layers[-1] / "usr/share/fonts/truetype/dejavu"
    shutil.copyfile(fonts / "DejaVuSans.ttf", tmp_path / "fonts" / "ours.ttf")
    (tmp_path / "setup.sh").write_text(SCRIPT)
    yield tmp_path
    if NAME in image_names() and image_named(NAME).release != Release():
        remove(layer_names(image_named(NAME))[0])
    remove_image(NAME)


def build(*options: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/build_guest.py", "--name", NAME, *map(str, options)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)


@pytest.mark.slow
def test_what_a_user_adds_is_in_the_desktops_of_his_image(own: Path) -> None:
    built = build("--package", own / "ours.deb", "--font", own / "fonts", "--run", own / "setup.sh")

    assert built.returncode == 0, built.stderr
    assert built.stdout.endswith(f"Its desktops: --provider-option profile={NAME}\n")
    assert NAME in image_names()
    provider = LocalProvider({"profile": NAME})
    provider.check_available()
    provider.boot("own-image-1")
    try:
        said = in_guest(
            provider,
            "own-image-1",
            "ourprogram; fc-list | grep -o ^/usr/local/share/fonts/fonts/ours.ttf; stat -c %U:%a ~/.ours; cat /etc/ours;"
            " ls /usr/share/backgrounds/guest.png /usr/sbin/policy-rc.d /var/cache/apt 2>&1; stat -c %u /usr/bin/figlet",
        ).splitlines()
    finally:
        provider.stop("own-image-1")
    assert said[:3] == ["ours", "/usr/local/share/fonts/fonts/ours.ttf", "user:600"]
    assert said[3].split()[1] != "0", "the script was root of this machine"
    assert [line.split("'")[1] for line in said[4:6]] == ["/usr/share/backgrounds/guest.png", "/usr/sbin/policy-rc.d"]
    assert said[-1] == "0"
    assert provider.image_name().startswith(f"{NAME}-")

    folder, *_ = [name for name in layer_names(image_named(NAME)) if name.startswith("additions-")]
    before = (guest_cache_folder() / folder).stat().st_ino
    again = build("--package", own / "ours.deb", "--font", own / "fonts", "--run", own / "setup.sh")
    assert again.returncode == 0, again.stderr
    assert (guest_cache_folder() / folder).stat().st_ino == before, "the same extension was built twice"
    kinds = {part["kind"] for part in listed() if part["image"] == NAME and part["current"]}
    assert kinds == {"additions", "facts"}

    earlier = guest_image_name(NAME)
    (own / "setup.sh").write_text(SCRIPT + "true\n")
    subprocess.run([sys.executable, "-c", REDEFINE, NAME, str(own / "setup.sh")], cwd=REPOSITORY, check=True)
    assert guest_image_name(NAME) != earlier
    assert {part["current"] for part in listed() if part["image"] == NAME} == {False}


REDEFINE = """
import sys
from pathlib import Path
from desktop_image import Release, define
with define(sys.argv[1], "core", Release(), scripts=[Path(sys.argv[2])]):
    pass
"""


def listed() -> list[dict[str, object]]:
    command = [sys.executable, "scripts/build_guest.py", "--list", "--json"]
    said = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return list(json.loads(said))


def test_a_script_that_fails_leaves_nothing_and_is_named(own: Path) -> None:
    (own / "setup.sh").write_text("#!/bin/sh\necho almost\nexit 3\n")

    built = build("--run", own / "setup.sh")

    assert (built.returncode, built.stdout) == (2, "")
    assert built.stderr.splitlines()[-1].startswith("error: the image could not be extended: ")
    assert built.stderr.splitlines()[-1].endswith("Running setup.sh | almost | setup.sh failed with exit code 3")
    assert not list(guest_cache_folder().glob(f"additions-{NAME}-*.partial"))
    assert NAME not in image_names()
    assert not [line for line in Path("/proc/mounts").read_text().splitlines() if NAME in line]


@pytest.mark.slow
def test_a_package_that_is_nowhere_is_named(own: Path) -> None:
    built = build("--package", "no-such-package-here")

    assert (built.returncode, built.stdout) == (2, "")
    assert built.stderr.splitlines()[-1] == (
        "error: fetching the added packages failed: E: Unable to locate package no-such-package-here"
    )


def test_what_an_image_removes_is_not_on_its_disk(tmp_path: Path) -> None:
    lower, layer, merged = tmp_path / "lower", tmp_path / "layer", tmp_path / "merged"
    for folder in ("gone/below", "new", "kept"):
        (lower / folder).mkdir(parents=True)
        (lower / folder / "file").touch()
    (lower / "link").symlink_to("kept")
    for folder in (layer, tmp_path / "work", tmp_path / "root"):
        folder.mkdir()
    changes = "rm -r gone kept/file link new && mkdir new && touch new/other kept/more"
    mounted = f"mount -t overlay -o lowerdir={lower},upperdir={layer},workdir={tmp_path}/work overlay {tmp_path}/root"
    subprocess.run(["unshare", "--mount", "sh", "-ec", f"{mounted}; cd {tmp_path}/root; {changes}"], check=True)
    shutil.copytree(lower, merged, symlinks=True)

    put_layer_on(layer, merged)

    assert sorted(str(path.relative_to(merged)) for path in merged.rglob("*")) == [
        "kept",
        "kept/more",
        "new",
        "new/other",
    ]
    assert not (merged / "gone").exists()


ESCAPE = """#!/usr/bin/python3
import os, subprocess
print("variables", sorted(set(os.environ) - {"PATH", "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}))
subprocess.Popen(["sleep", "600"])
os.mkdir("/tmp/inner")
outside = os.open("/", 0)
os.chroot("/tmp/inner")
os.fchdir(outside)
for _ in range(40):
    os.chdir("..")
os.chroot(".")
print("marker", os.path.exists("MARKER"), os.path.exists("/usr/lib/guest"))
"""


def test_what_is_run_in_an_image_finds_no_way_out_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "of this machine")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        target, given = folder / "target", folder / "given"
        for made in (target, given / "debs", given / "fonts", given / "scripts"):
            made.mkdir(parents=True)
        (given / "scripts" / "00-escape").write_text(ESCAPE.replace("MARKER", str(folder)))
        shutil.copyfile(REPOSITORY / "desktop_image/extend.sh", given / "extend.sh")
        extension_layer._let_everybody_read(given)
        said: list[str] = []

        extension_layer._apply(given, guest_root("core").layers, target, said.append)

    assert "marker False True" in said
    assert "variables ['DEBIAN_FRONTEND', 'HOME', 'LANG']" in said


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_another_release_of_debian(own: Path) -> None:
    built = build("--suite", "trixie")

    assert built.returncode == 0, built.stderr
    provider = LocalProvider({"profile": NAME})
    provider.check_available()
    provider.boot("own-image-2")
    try:
        assert in_guest(provider, "own-image-2", ". /etc/os-release; echo $VERSION_CODENAME").strip() == "trixie"
        in_guest(provider, "own-image-2", "setsid gnome-calculator >/dev/null 2>&1 & sleep 10")
        client = http.client.HTTPConnection("localhost")
        client.sock = provider.connect("own-image-2", "control")
        client.request("GET", "/accessibility")
        tree = json.loads(client.getresponse().read())["AT"]
        client.close()
    finally:
        provider.stop("own-image-2")
    places = [
        one.centre
        for one in accessibility_tree.elements(tree)
        if one.role == "push-button" and one.name in set("123456789")
    ]
    assert len(set(places)) == len(places) == 9
