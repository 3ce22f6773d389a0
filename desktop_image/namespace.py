"""Runs commands as the root of a user namespace: with a guest's ids, and without rights outside.

Root may choose which outside ids stand for the guest's. Another user's own id stands for the guest's root, and ids from
/etc/subuid and /etc/subgid, used through `newuidmap` and `newgidmap`, stand for the rest.
"""

from __future__ import annotations

import os
import pwd
import select
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from desktop_image import build_locks
from desktop_image.errors import GuestBuildError
from desktop_image.ownership import GUEST_ID_COUNT, GUEST_ID_SHIFT

_START_SECONDS = 10.0
_AS_ITS_ROOT = """
echo inside
read -r _ || exit
exec setpriv --reuid=0 --regid=0 --clear-groups --pdeathsig=KILL "$@"
"""


@dataclass(frozen=True, slots=True)
class _Row:
    """A range of ids: the first inside, the first outside, how many."""

    inside: int
    outside: int
    count: int


def run(
    command: Sequence[str],
    *,
    folder: Path | None = None,
    descriptors: Sequence[int] = (),
    on_line: Callable[[str], None] = lambda _line: None,
    variables: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Runs a command; it is killed when this process ends. It holds the locks of the present build.

    Args:
        command: It can access what the namespace's ids may access, and the descriptors.
        folder: Its working folder.
        descriptors: Open files that it inherits.
        on_line: Called with each line it prints.
        variables: Its environment; None for this process's.

    Returns:
        Its exit code and the last line it printed.

    Raises:
        GuestBuildError: This user cannot make such a namespace here; one sentence says why and what to do.
    """
    rows = {"uid": [_Row(0, GUEST_ID_SHIFT, GUEST_ID_COUNT)], "gid": [_Row(0, GUEST_ID_SHIFT, GUEST_ID_COUNT)]}
    if os.geteuid() != 0:
        rows = {"uid": _rows_of_user("uid", os.geteuid()), "gid": _rows_of_user("gid", os.getegid())}
    with subprocess.Popen(  # noqa: S603
        ["unshare", "--user", "--keep-caps", "sh", "-c", _AS_ITS_ROOT, "sh", *command],  # noqa: S607
        cwd=folder,
        env=variables
        or {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"},  # a user may lack these
        pass_fds=(*descriptors, *build_locks.descriptors()),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise ValueError("the command's input and output are pipes")
        try:
            said = process.stdout.readline() if _speaks(process.stdout) else b""
            if said != b"inside\n":
                reason = said.decode(errors="replace").strip() or "unshare does not answer"
                raise GuestBuildError(f"this machine makes no user namespace, so building needs root: {reason}")
            for kind, ids in rows.items():
                _map(process.pid, kind, ids)
            process.stdin.write(b"\n")
            process.stdin.close()
            last = ""
            for line in process.stdout:
                last = line.decode(errors="replace").strip() or last
                on_line(last)
        except BaseException:
            process.kill()
            raise
    return process.returncode, last


def _speaks(stream: IO[bytes]) -> bool:
    ready = select.poll()  # unlike select(), works for any number of open files
    ready.register(stream, select.POLLIN)
    return bool(ready.poll(_START_SECONDS * 1000))


def _map(pid: int, kind: str, rows: list[_Row]) -> None:
    if os.geteuid() == 0:
        Path(f"/proc/{pid}/{kind}_map").write_text("".join(f"{row.inside} {row.outside} {row.count}\n" for row in rows))
        return
    numbers = [str(number) for row in rows for number in (row.inside, row.outside, row.count)]
    done = subprocess.run([f"new{kind}map", str(pid), *numbers], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise GuestBuildError(f"new{kind}map refuses what building a guest image needs: {done.stderr.strip()[-300:]}")


def _rows_of_user(kind: str, caller_id: int) -> list[_Row]:
    if shutil.which(f"new{kind}map") is None:
        raise GuestBuildError(
            f"building a guest image without root's rights needs new{kind}map: apt-get install uidmap"
        )
    return [_Row(0, caller_id, 1), _Row(1, _lent(Path(f"/etc/sub{kind}")), GUEST_ID_COUNT - 1)]


def _lent(listing: Path) -> int:
    """Returns the first of the ids that the system grants this user."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = str(os.geteuid())
    for line in listing.read_text().splitlines() if listing.is_file() else []:
        who, _, ids = line.partition(":")
        first, _, count = ids.partition(":")
        if who in {name, str(os.geteuid())} and count.isdigit() and int(count) >= GUEST_ID_COUNT - 1:
            return int(first)
    raise GuestBuildError(
        f"building a guest image without root's rights needs {GUEST_ID_COUNT} ids in {listing}: run"
        f" 'sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}'"
    )
