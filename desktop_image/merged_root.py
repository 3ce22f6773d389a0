"""Runs a command in a root merged from a guest's layers; its changes make a new layer.

Runs in its own mount and process namespaces, as ``python -m desktop_image extension TARGET GIVEN LAYER...``.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from desktop_image import namespace

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DETACH = 2
"""Linux's MNT_DETACH."""
GIVEN = "mnt"
"""Where the root sees the given folder."""


def run(
    target: Path, given: Path, lower: Sequence[Path], command: Sequence[str], on_line: Callable[[str], None]
) -> tuple[int, str]:
    """Runs a command in the root; its changes are kept in ``TARGET/layer``.

    Args:
        target: Must exist; ``work`` and ``root`` are left in it and are no longer needed.
        given: A folder that the root sees under `GIVEN`.
        lower: The layers, topmost first.
        command: Run as the root of the guest's user namespace.
        on_line: Called with each line it prints.

    Returns:
        Its exit code, and the last line it printed.

    Raises:
        GuestBuildError: This machine does not allow such a namespace.
    """
    layer, work, root = (target / name for name in ("layer", "work", "root"))
    for folder in (layer, work, root):
        folder.mkdir()
    _mount("-t", "overlay", "-o", layer_options(lower, layer, work), "overlay", str(root))
    _mount("-t", "proc", "proc", str(root / "proc"))
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(root / "dev"))
    for name in DEVICES:
        (root / "dev" / name).touch()
        _mount("--bind", f"/dev/{name}", str(root / "dev" / name))
    for name in ("tmp", "run"):
        _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(root / name))
    _mount("--bind", "-o", "ro", str(given), str(root / GIVEN))
    if Path("/etc/resolv.conf").is_file():
        _mount("--bind", "/etc/resolv.conf", str(root / "etc/resolv.conf"))
    _make_it_all_there_is(root)
    return namespace.run(
        command, folder=Path("/"), on_line=on_line, variables={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    )


def layer_options(lower: Sequence[Path], layer: Path, work: Path) -> str:
    """Returns the options of an overlay whose changes are whole files in `layer`, which can be merged by copying.

    By default, some kernels note where a renamed folder or a changed file's content is below.
    """
    folders = f"lowerdir={':'.join(map(str, lower))},upperdir={layer},workdir={work}"
    return f"{folders},redirect_dir=off,metacopy=off"


def _make_it_all_there_is(root: Path) -> None:
    """Makes this the process's only root, without any other mounts: root could leave a chroot."""
    before = os.open("/", os.O_DIRECTORY)
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "."], check=True)  # noqa: S607
    os.fchdir(before)
    os.close(before)
    if ctypes.CDLL(None, use_errno=True).umount2(b".", _DETACH) != 0:
        raise OSError(ctypes.get_errno(), "this machine's files stay in sight")
    os.chdir("/")


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)  # noqa: S603, S607
