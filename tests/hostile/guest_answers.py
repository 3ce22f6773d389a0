"""What a guest answers: on the control port, as Chromium's debugger, and as VLC. As it should be; mutations are the tests'."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

from tests.hostile.raw_http import Answer, Connection, Request
from tests.hostile.sample_files import A11Y_TREE, SCREEN, STATUS_XML, picture, samples
from tests.hostile.sample_tasks import GOOD

_QUOTED = re.compile(r"'([^']*)'")
_TEXT, _CLOSE = 1, 8
_SAID = {
    "status": "success",
    "output": "1\n",
    "error": "",
    "returncode": 0,
    "message": "done",
}


def control(request: Request) -> Answer:
    """The answer of a guest's control server."""
    path = request.path.partition("?")[0]
    if path == "/platform":
        return Answer(b"Linux", "text/plain")
    if path == "/screenshot":
        return Answer(picture("PNG"), "image/png")
    if path == "/wallpaper":
        return Answer(samples()["a.png"], "image/png")
    if path == "/file":
        return Answer(*_file(path_of(request)))
    if path == "/end_recording":
        return Answer(samples()["a.avi"], "video/mp4")
    return Answer(json.dumps(_values(path, request)).encode())


def path_of(request: Request) -> str:
    """The file that is asked for."""
    return parse_qs(request.body.decode("utf-8", "replace")).get("file_path", [""])[0]


def is_good(request: Request) -> bool:
    """Whether a file is asked for that must be as it should be."""
    return request.path == "/file" and path_of(request).startswith(GOOD)


def vlc(request: Request) -> Answer:
    """The answer of VLC's server."""
    return Answer(STATUS_XML, "text/xml")


def chromium(request: Request, port: int) -> Answer:
    """The answer of Chromium's debugger, to what is no websocket."""
    told = {
        "Browser": "Chrome/140.0.0.0",
        "Protocol-Version": "1.3",
        "webSocketDebuggerUrl": f"ws://127.0.0.1:{port}/devtools/browser/1",
    }
    if request.path.startswith("/json/list"):
        return Answer(json.dumps([{"url": "https://a.org/", "title": "A", "type": "page", "id": "1"}]).encode())
    return Answer(json.dumps(told).encode())


def upgraded(request: Request) -> bytes:
    """The beginning of a websocket."""
    key = request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accepted = base64.b64encode(hashlib.sha1(key.encode(), usedforsecurity=False).digest()).decode()
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accepted}\r\n\r\n"
    ).encode()


def commands(connection: Connection) -> Iterator[dict[str, Any]]:
    """What is said in a websocket to the debugger."""
    have = b""
    for piece in connection.received():
        have += piece
        while (frame := _frame(have)) is not None:
            opcode, content, have = frame
            if opcode == _CLOSE:
                return
            if opcode == _TEXT:
                yield json.loads(content)


def debugger_says(command: dict[str, Any]) -> list[dict[str, Any]]:
    """Chromium's messages after a command: one browser with one page, as far as Playwright asks."""
    number, method = command.get("id"), command.get("method", "")
    session = {"sessionId": command["sessionId"]} if "sessionId" in command else {}
    page = {
        "targetId": "1",
        "type": "page",
        "title": "A",
        "url": "https://a.org/",
        "attached": True,
        "browserContextId": "c",
        "canAccessOpener": False,
    }
    frame = {
        "id": "1",
        "loaderId": "l",
        "url": "https://a.org/",
        "domainAndRegistry": "a.org",
        "securityOrigin": "https://a.org",
        "mimeType": "text/html",
        "secureContextType": "Secure",
        "crossOriginIsolatedContextType": "NotIsolated",
        "gatedAPIFeatures": [],
    }
    before: list[dict[str, Any]] = []
    result: dict[str, Any] = {}
    if method == "Browser.getVersion":
        result = {
            "protocolVersion": "1.3",
            "product": "Chrome/140.0.0.0",
            "revision": "@1",
            "userAgent": "Mozilla/5.0 Chrome/140.0.0.0",
            "jsVersion": "14",
        }
    elif method == "Target.setAutoAttach" and not session:
        before = [
            {
                "method": "Target.attachedToTarget",
                "params": {"sessionId": "s", "targetInfo": page, "waitingForDebugger": False},
            }
        ]
    elif method == "Target.getTargetInfo":
        result = {"targetInfo": page}
    elif method == "Page.getFrameTree":
        result = {"frameTree": {"frame": frame}}
    elif method == "Page.createIsolatedWorld":
        context = {"id": 2, "origin": "https://a.org", "name": command.get("params", {}).get("worldName", "")}
        context |= {"uniqueId": "2", "auxData": {"isDefault": False, "type": "isolated", "frameId": "1"}}
        before = [{"method": "Runtime.executionContextCreated", "params": {"context": context}, **session}]
        result = {"executionContextId": 2}
    elif method == "Runtime.enable":
        context = {"id": 1, "origin": "https://a.org", "name": "", "uniqueId": "1"}
        context["auxData"] = {"isDefault": True, "type": "default", "frameId": "1"}
        before = [{"method": "Runtime.executionContextCreated", "params": {"context": context}, **session}]
    elif method in {"Runtime.evaluate", "Runtime.callFunctionOn"}:
        result = {"result": {"type": "string", "value": "A", "objectId": "o"}}
    elif method == "Page.addScriptToEvaluateOnNewDocument":
        result = {"identifier": "1"}
    return [*before, {"id": number, "result": result, **session}]


def framed(content: bytes, opcode: int = 1) -> bytes:
    """A websocket's frame, as servers send it."""
    if len(content) < 126:
        return bytes([0x80 | opcode, len(content)]) + content
    if len(content) < 1 << 16:
        return bytes([0x80 | opcode, 126]) + struct.pack("!H", len(content)) + content
    return bytes([0x80 | opcode, 127]) + struct.pack("!Q", len(content)) + content


def _frame(have: bytes) -> tuple[int, bytes, bytes] | None:
    """Kind and content of a client's first frame, and what follows it; None where it is not whole."""
    if len(have) < 2:
        return None
    opcode, length, place = have[0] & 15, have[1] & 127, 2
    if length == 126:
        length, place = int.from_bytes(have[2:4]), 4
    elif length == 127:
        length, place = int.from_bytes(have[2:10]), 10
    mask, start = have[place : place + 4], place + 4
    if len(have) < start + length:
        return None
    content = bytes(byte ^ mask[at % 4] for at, byte in enumerate(have[start : start + length]))
    return opcode, content, have[start + length :]


def _file(path: str) -> tuple[bytes, str, int]:
    name = path.rpartition("/")[2]
    content = samples().get(name)
    return (content, "application/octet-stream", 200) if content is not None else (b'{"error": "none"}', "text/plain", 404)


def _values(path: str, request: Request) -> dict[str, Any]:
    match path:
        case "/accessibility":
            return {"AT": A11Y_TREE}
        case "/terminal":
            return {"output": "user@desktop:~$ ls\na.txt\n", "status": "success"}
        case "/screen_size":
            return {"width": SCREEN[0], "height": SCREEN[1]}
        case "/window_size":
            return {"width": SCREEN[0], "height": SCREEN[1]}
        case "/desktop_path":
            return {"desktop_path": "/home/user/Desktop"}
        case "/list_directory":
            children = [{"name": "a.jpg", "type": "file"}, {"name": "b", "type": "directory", "children": []}]
            return {"directory_tree": {"type": "directory", "name": "user", "children": children}}
        case "/execute" | "/setup/execute":
            return {**_SAID, "output": _said(request)}
    return dict(_SAID)


def _said(request: Request) -> str:
    """What a command prints, as far as getters rely on it."""
    command = json.loads(request.body or b"{}").get("command", "")
    text = command if isinstance(command, str) else " ".join(map(str, command))
    if "platform.system" in text:
        return "Linux\n"
    if "xdg-mime" in text:
        return "vlc.desktop\n"
    if ("expanduser" in text or "getenv('HOME')" in text) and (quoted := _QUOTED.findall(text)):
        return f"/home/user/{quoted[-1].removeprefix('~/')}\n"
    if "timedatectl" in text:
        return "Local time: x\nUniversal time: y\nRTC time: z\n Time zone: Etc/UTC (UTC, +0000)\n"
    if "gsettings" in text:
        return "['a.desktop', 'b.desktop']\n"
    return "1\n"
