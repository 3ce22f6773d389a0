"""Inspects and makes disk images with qemu-img."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from vm_pool.errors import ProviderError

IMAGE_SECONDS = 60.0
"""For any operation on a disk image; usually hundredths of a second."""


def make_overlay(backing: Path, backing_format: str, overlay: Path) -> None:
    """Makes a disk that reads from another one and writes to itself.

    Raises:
        RuntimeError: qemu-img cannot make it.
    """
    run("create", "-q", "-f", "qcow2", "-b", str(backing), "-F", backing_format, str(overlay))


def run(*arguments: str) -> str:
    """Runs qemu-img; returns its output.

    Raises:
        RuntimeError: It fails.
    """
    command = shutil.which("qemu-img")
    if command is None:
        raise ProviderError("qemu-img is not installed: apt-get install qemu-utils")
    try:
        done = subprocess.run(  # noqa: S603
            [command, *arguments], capture_output=True, text=True, errors="replace", timeout=IMAGE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"qemu-img {arguments[0]} took more than {IMAGE_SECONDS:.0f} s") from error
    if done.returncode:
        raise RuntimeError(" ".join(done.stderr.split())[-300:])
    return done.stdout
