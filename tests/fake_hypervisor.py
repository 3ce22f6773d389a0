"""Stands in for VMware's ``vmrun`` and VirtualBox's ``VBoxManage``: a program with their commands, for VMs that are small.

Such a VM is a process that answers HTTP on port 5000 of a loopback address of its own; its disk is a file. Started as
``fake_hypervisor.py vmrun ARGUMENT...``; the folder of its VMs is in FAKE_HYPERVISOR. A file ``fail-WORD`` there makes the command
of that word fail, ``hang-WORD`` makes it hang.
"""

from __future__ import annotations

import http.server
import os
import signal
import struct
import subprocess
import sys
import time
import zlib
from contextlib import suppress
from pathlib import Path

HOME = Path(os.environ.get("FAKE_HYPERVISOR", "/nonexistent"))


def add_vm(home: Path, name: str, address: str) -> Path:
    """Makes a VM with a snapshot ``init_state``; returns its path."""
    folder = home / name
    folder.mkdir(parents=True)
    (folder / "address").write_text(address)
    (folder / "disk").write_text("clean")
    (folder / "init_state").write_text("clean")
    path = folder / f"{name}.vmx"
    path.write_text("")
    return path


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes((width + 7) // 8)) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


class Guest(http.server.BaseHTTPRequestHandler):
    """What a VM answers: a screenshot, and what is on its disk."""

    folder: Path

    def do_GET(self) -> None:
        disk = self.folder / "disk"
        self._reply(png(1920, 1080) if self.path == "/screenshot" else disk.read_bytes())

    def do_POST(self) -> None:
        (self.folder / "disk").write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
        self._reply(b"written")

    def log_message(self, *_: object) -> None:
        pass

    def _reply(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def running(folder: Path) -> int | None:
    with suppress(OSError, ValueError):
        pid = int((folder / "pid").read_text())
        os.kill(pid, 0)
        return pid
    return None


def start(folder: Path, *, daemon: bool) -> None:
    """A daemon holds nothing of whoever started it."""
    if running(folder) is None:
        output = subprocess.DEVNULL if daemon else None
        process = subprocess.Popen(
            [sys.executable, __file__, "guest", folder],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        (folder / "pid").write_text(str(process.pid))


def stop(folder: Path) -> None:
    pid = running(folder)
    if pid is None:
        sys.exit("Error: The virtual machine is not powered on")
    os.kill(pid, signal.SIGKILL)
    (folder / "pid").unlink()
    while Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        time.sleep(0.01)


def revert(folder: Path, snapshot: str) -> None:
    saved = folder / snapshot
    if not saved.exists():
        sys.exit("Error: The snapshot does not exist")
    if running(folder) is not None:
        stop(folder)
    (folder / "disk").write_text(saved.read_text())


def vmrun(word: str, *rest: str) -> None:
    folder = Path(rest[0]).parent if rest else Path()
    match word:
        case "list":
            up = [folder for folder in sorted(HOME.iterdir()) if folder.is_dir() and running(folder) is not None]
            print(f"Total running VMs: {len(up)}", *(folder / f"{folder.name}.vmx" for folder in up), sep="\n")
        case "start":
            start(folder, daemon=False)
        case "stop":
            stop(folder)
        case "revertToSnapshot":
            revert(folder, rest[1])
        case "getGuestIPAddress":
            if running(folder) is None:
                sys.exit("Error: The VMware Tools are not running in the virtual machine")
            print((folder / "address").read_text())


def vboxmanage(word: str, *rest: str) -> None:
    """A VM's name is its folder's, and its uuid the name in brackets."""
    match word, *rest:
        case "list", which:
            for folder in sorted(HOME.iterdir()):
                if folder.is_dir() and (which == "vms" or running(folder) is not None):
                    print(f'"{folder.name}" {{uuid-of-{folder.name}}}')
        case "startvm", uuid, *_:
            start(_folder(uuid), daemon=True)
        case "controlvm", uuid, "savestate" | "poweroff":
            stop(_folder(uuid))
        case "snapshot", uuid, "restore", snapshot:
            revert(_folder(uuid), snapshot)
        case "guestproperty", "get", uuid, _:
            folder = _folder(uuid)
            print(f"Value: {(folder / 'address').read_text()}" if running(folder) is not None else "No value set!")


def _folder(uuid: str) -> Path:
    return HOME / uuid.removeprefix("uuid-of-")


def main() -> None:
    program, *arguments = sys.argv[1:]
    if program == "guest":
        Guest.folder = Path(arguments[0])
        address = (Guest.folder / "address").read_text()
        http.server.ThreadingHTTPServer((address, 5000), Guest).serve_forever()
    if program == "vmrun":
        arguments = arguments[2:]  # -T ws
    word = arguments[0]
    if (HOME / f"fail-{word}").exists():
        sys.exit(f"Error: {word} is broken today")
    while (HOME / f"hang-{word}").exists():
        time.sleep(0.05)
    (vmrun if program == "vmrun" else vboxmanage)(*arguments)


if __name__ == "__main__":
    main()
