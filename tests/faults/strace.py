"""strace, attached to a process of ours: what it did to the files of a run, and calls that fail, wait or kill at a given file."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.processes import wait_until

CALLS = "openat,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,link,linkat,mkdir,mkdirat,unlink,unlinkat,fallocate"
_CALL = re.compile(r"^(?P<pid>\d+) +(?P<call>\w+)\((?P<arguments>.*)\) += (?P<result>.*)$")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_DESCRIPTOR = re.compile(r"^\w+<([^>]*)>")
_MAKING = {"write", "pwrite64", "rename", "renameat", "renameat2", "link", "linkat", "mkdir", "mkdirat", "fallocate"}
_NAMELESS = "(nameless)"
"""How a file is called that has no name yet."""
_NEW_FOLDER = "(new folder)"
"""How the hidden folder is called in which a submission makes the run's."""
_COUNTED = ("f", "link", "mkdir", "rename", "unlink")
"""How calls begin that a process makes as often in each play; others, as on a log or a module, come at any number."""
_ATTACH_SECONDS = 20.0


class Tracer:
    """strace, attached to a process and its threads until it is closed."""

    def __init__(self, pid: int, output: Path, options: Sequence[str]) -> None:
        self._pid = pid
        self._output = output
        self._process = subprocess.Popen(
            ["strace", "-f", "-y", "-s", "4096", "-o", str(output), *options, "-p", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if not wait_until(self._attached, _ATTACH_SECONDS):
            self.close()
            raise RuntimeError(f"strace did not attach to process {pid}")

    def _attached(self) -> bool:
        with contextlib.suppress(OSError):
            return f"TracerPid:\t{self._process.pid}\n" in Path(f"/proc/{self._pid}/status").read_text()
        return self._process.poll() is not None

    @property
    def text(self) -> str:
        """What it saw."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def close(self) -> str:
        """Detaches; returns what it saw. Harmless when repeated."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return self.text


@dataclass(frozen=True, slots=True)
class Call:
    """A call on a file of the run's folder."""

    role: str
    pid: int
    name: str
    file: str
    watched: str
    makes: bool
    number: int = 1
    """The how-manieth call of its kind it was, of all that the process made."""


def calls_in(text: str, folder: Path, role: str, pid: int) -> list[Call]:
    """The successful calls on a folder's files in what strace wrote; `pid` is the traced process, not its thread."""
    found = []
    numbers: Counter[str] = Counter()
    for line in text.splitlines():
        match = _CALL.match(line)
        if match is None:
            continue
        numbers[match["call"]] += 1
        if match["result"].startswith(("-1", "?")):
            continue
        files = [_template(path, folder, pid) for path in _paths_of(match["call"], match["arguments"])]
        if not files or None in files:
            continue
        makes = match["call"] in _MAKING or "O_CREAT" in match["arguments"] or "O_TMPFILE" in match["arguments"]
        if match["call"] == "openat" and not makes and "O_DIRECTORY" in match["arguments"]:
            continue
        watched = (
            files[0] if files[0] and _is_foreseeable(files[0]) else ""
        )  # strace finds no call by the name that it makes
        if not watched and not match["call"].startswith(_COUNTED):
            continue
        found.append(Call(role, pid, match["call"], files[-1] or "", watched, makes, numbers[match["call"]]))
    return found


def _paths_of(call: str, arguments: str) -> list[Path]:
    """The file that a call makes, changes or reads; of a rename or a link, the old name and the new one."""
    descriptor = _DESCRIPTOR.match(arguments)
    strings: list[str] = _STRING.findall(arguments)
    if call in {"write", "pwrite64", "fsync", "fdatasync", "fallocate"}:
        return [Path(descriptor[1])] if descriptor else []
    if call in {"linkat", "renameat", "renameat2"}:
        strings = strings[-1:]
    paths = [Path(string) for string in (strings if call.startswith(("rename", "link")) else strings[:1])]
    return [path if path.is_absolute() or descriptor is None else Path(descriptor[1]) / path for path in paths]


def _template(path: Path, folder: Path, pid: int) -> str | None:
    """A file's name in every play; None if it is not the run's."""
    if path.is_relative_to(folder):
        file = str(path.relative_to(folder))
    elif path.is_relative_to(folder.parent) and path != folder.parent:
        hidden, *below = path.relative_to(folder.parent).parts
        if not re.fullmatch(rf"\.{re.escape(folder.name)}\.[0-9a-f]+\.new-run", hidden):
            return None
        file = "/".join([_NEW_FOLDER, *below])
    else:
        return None
    file = re.sub(r"#\d+( \(deleted\))?$", _NAMELESS, file)
    file = re.sub(r"\bitem-\d+\b", "{item}", file)
    return re.sub(rf"\b{pid}\b", "{pid}", file)


def _is_foreseeable(file: str) -> bool:
    """Whether a file will have this name in the next play."""
    return _NAMELESS not in file and not file.startswith(_NEW_FOLDER)


def strace_is_there() -> bool:
    """Whether strace can attach to a process here."""
    with contextlib.suppress(OSError):
        held = subprocess.Popen(["sleep", "30"])
        try:
            Tracer(held.pid, Path(os.devnull), ["-e", "trace=none"]).close()
            return True
        except RuntimeError:
            return False
        finally:
            held.kill()
            held.wait()
    return False
