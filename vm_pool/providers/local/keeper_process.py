"""The keeper processes of local desktops (`keeper.sh`): launching, reading, finding and ending them."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from vm_pool.processes import children_of, command_lines, environment_for_guests, kill_with_children
from vm_pool.providers.local.entry import EntrySettings

END_SECONDS = 10.0
"""From SIGKILL to the end of the last process."""
_RUNTIME_MESSAGE = re.compile(r'level=error msg="(.*)"')
PARTS = "parts"
"""The subfolder of a desktop's folder in which its user namespace and the image's layers are mounted."""
_KEEPER = Path(__file__).with_name("keeper.sh")
_ENTRY = _KEEPER.with_name("entry.py")


def launch_keeper(folder: Path, settings: EntrySettings, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts the keeper of a desktop's folder in its own namespaces.

    Args:
        folder: The desktop's.
        settings: What is made and mounted before it starts.
        arguments: See `keeper.sh`.
    """
    return subprocess.Popen(  # noqa: S603
        [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *(sys.executable, "-I", "-S", str(_ENTRY), str(folder / PARTS), json.dumps(settings)),
            *("sh", str(_KEEPER), str(folder), *arguments),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # the host handles Ctrl-C at its terminal
        cwd="/",
        env=environment_for_guests(),
    )


def keepers_of(folder: Path) -> Iterator[int]:
    """Returns this user's keepers of one desktop's folder, and the processes that launched them."""
    return (pid for pid, desktops in keepers_below(folder.parent) if desktops == folder)


def keepers_below(folders: Path) -> Iterator[tuple[int, Path]]:
    """Yields the same of all desktops whose folders are in this one, with the desktop's folder, which may be gone."""
    for pid, words in command_lines():
        for script, folder in pairwise(words):
            if script.endswith(_KEEPER.name) and Path(folder).parent == folders:
                yield pid, Path(folder)


def end_keeper(pid: int) -> None:
    """Kills a keeper, or the process that launched it, and waits for the end of everything in its namespace.

    Raises:
        TimeoutError: It does not end.
    """
    kill_with_children(pid, END_SECONDS)


def only_child(pid: int) -> int:
    """Returns the keeper that a process has launched."""
    children = children_of(pid)
    if len(children) != 1:
        raise RuntimeError("the desktop's keeper has ended")
    return children[0]


def launched(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Returns ``started`` once a keeper says so; else why not: the end of its output, or nothing where it says nothing in time.

    What programs before it have to say, such as a warning of the dynamic linker, is in the same output.
    """
    if process.stdout is None:
        raise ValueError("the keeper's output is not read")
    deadline = time.monotonic() + seconds
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    output = b""
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        piece = os.read(process.stdout.fileno(), 1 << 12)
        output += piece
        if b"started" in (line.strip() for line in output.split(b"\n")[:-1]):
            return "started"
        if not piece:
            return _why(output) or "its keeper ended without a word"
    return _why(output)


def _why(output: bytes) -> str:
    said = " ".join(output.decode(errors="replace").split())
    if (message := _RUNTIME_MESSAGE.search(said)) is not None:
        said = message[1]
    return said[-500:]
