"""A small SFTP server on loopback, made of paramiko's: one user, one folder. It can break off its connections."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import paramiko

USER, PASSWORD = "somebody", "not-to-be-seen"


class _Login(paramiko.ServerInterface):
    def check_auth_password(self, username: str, password: str) -> int:
        right = (username, password) == (USER, PASSWORD)
        return paramiko.AUTH_SUCCESSFUL if right else paramiko.AUTH_FAILED

    def check_channel_request(self, _kind: str, _chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED


class _Handle(paramiko.SFTPHandle):
    def stat(self) -> Any:
        return paramiko.SFTPAttributes.from_stat(os.fstat(self.readfile.fileno()))


class _Files(paramiko.SFTPServerInterface):
    root = Path()

    def _path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def list_folder(self, path: str) -> Any:
        try:
            return [
                paramiko.SFTPAttributes.from_stat(one.lstat(), one.name) for one in sorted(self._path(path).iterdir())
            ]
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno)

    def stat(self, path: str) -> Any:
        try:
            return paramiko.SFTPAttributes.from_stat(self._path(path).stat())
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno)

    lstat = stat

    def open(self, path: str, flags: int, _attr: Any) -> Any:
        try:
            descriptor = os.open(self._path(path), flags, 0o644)
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno)
        file = os.fdopen(descriptor, "wb" if flags & os.O_WRONLY else "r+b" if flags & os.O_RDWR else "rb")
        handle = _Handle(flags)
        handle.filename = str(self._path(path))
        handle.readfile = handle.writefile = file
        return handle

    def _done(self, act: Any, *arguments: Any) -> int:
        try:
            act(*arguments)
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno)
        return paramiko.SFTP_OK

    def remove(self, path: str) -> int:
        return self._done(self._path(path).unlink)

    def posix_rename(self, oldpath: str, newpath: str) -> int:
        return self._done(self._path(oldpath).replace, self._path(newpath))

    rename = posix_rename

    def mkdir(self, path: str, _attr: Any) -> int:
        return self._done(self._path(path).mkdir)

    def rmdir(self, path: str) -> int:
        return self._done(self._path(path).rmdir)


class SFTPServer:
    """The server."""

    def __init__(self, root: Path) -> None:
        self._files = type("Files", (_Files,), {"root": root})
        self._key = paramiko.RSAKey.generate(2048)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._connections: list[paramiko.Transport] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            transport = paramiko.Transport(connection)
            transport.add_server_key(self._key)
            transport.set_subsystem_handler("sftp", paramiko.SFTPServer, self._files)
            self._connections.append(transport)
            transport.start_server(server=_Login())

    def break_off(self) -> int:
        """Ends all connections; new ones are taken. Returns how many."""
        broken = [one for one in self._connections if one.is_active()]
        for one in broken:
            one.close()
        return len(broken)

    def close(self) -> None:
        self._listening.close()
        self.break_off()
