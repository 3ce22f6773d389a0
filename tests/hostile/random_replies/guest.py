"""A guest as a seed says: its control server, its browser's debugger and VLC, behind a gate and in a pool of its own."""

from __future__ import annotations

import json
import re
import socket
from collections import Counter
from typing import Any
from urllib.parse import parse_qs

from benchmark.items import Item
from tests.hostile.random_replies.answers import Answer, AnswerServer, Request, Sent, spoiled
from tests.hostile.random_replies.model import ModelStage
from tests.hostile.random_replies.mutations import Mutator
from tests.hostile.random_replies.sample_files import A11Y_TREE, SCREEN, STATUS_XML, picture, samples
from tests.hostile.random_replies.sample_tasks import GOOD, TASKS
from vm_pool.gate import Gates
from vm_pool.gate_login import token_of
from vm_pool.pool import VMPool

_QUOTED = re.compile(r"'([^']*)'")
_FILES = ("/file", "/wallpaper", "/end_recording")
_SCREENS = ("/screenshot", "/accessibility")
_SAID = {
    "status": "success",
    "output": "1\n",
    "error": "",
    "returncode": 0,
    "message": "done",
}


class GuestStage:
    """A hostile guest, and a model that is as it should be."""

    kind = "guest"
    max_seconds = 10.0
    """How long an attempt may take."""

    def __init__(self, pool: VMPool, secrets: tuple[str, ...]) -> None:
        """Registers the guest.

        Args:
            pool: Of its own.
            secrets: What no guest may hear.
        """
        assert pool.gate_key is not None
        self._model = ModelStage("")
        self._pool = pool.name
        self._longest_pause = self.max_seconds + 5
        self._asked: Counter[str] = Counter()
        self._servers = {
            "control": AnswerServer(self._control),
            "chromium": AnswerServer(self._chromium),
            "vlc": AnswerServer(self._vlc),
        }
        self._gates = Gates(key=pool.gate_key)
        self._gate = self._gates.open(list(self._servers), self._dial)
        token = token_of(pool.gate_key, self._gate.endpoint.gate)
        self._secrets = [secret.encode() for secret in (*secrets, token)]
        pool.register("vm", self._gate.endpoint)

    @property
    def mistakes(self) -> list[str]:
        """The tests' own, and secrets that the guest heard."""
        return self._model.mistakes + [one for server in self._servers.values() for one in server.mistakes]

    def begin(self, seed: int | None) -> tuple[Item, dict[str, Any]]:
        """From now on it answers as this seed says; the item and the configuration of an attempt."""
        _item, config = self._model.begin(None)
        draw = Mutator(f"guest {seed}")
        self._seed = seed
        self._asked.clear()
        self._way = draw.random.choice(("files", "files", "files", "values", "values", "answers", "screens"))
        self._share = draw.random.choice((0.1, 0.4, 1.0))
        self._only = draw.random.choice(
            ("", "", "/screenshot", "/execute", "/setup/execute", "/terminal", "/accessibility")
        )
        name = "documents" if seed is None else draw.random.choice(sorted(TASKS))
        desktop_view = draw.random.choice(("screenshot", "a11y_tree", "screenshot_a11y_tree", "som"))
        desktop = {
            "screen_width": SCREEN[0],
            "screen_height": SCREEN[1],
            "sleep_after_execution": 0.0,
            "observation_type": "screenshot" if seed is None else desktop_view,
            "action_space": draw.random.choice(("computer_13", "pyautogui", "claude_computer_use")),
            "a11y": draw.random.choice(("outline", "osworld")),
            "require_terminal": draw.chance(0.3),
            "enable_recording": draw.chance(0.3),
        }
        limits = config["limits"] | ({} if seed is None else {"max_seconds": self.max_seconds})
        vm = {"pool": self._pool, "wait_seconds": 20}
        config |= {"limits": limits, "env_mode": "osworld", "desktop": desktop, "vm": vm}
        return Item(f"{self.kind}-{seed}", name, "", metadata=TASKS[name]), config

    def close(self) -> None:
        """Ends it."""
        self._gate.close()
        self._gates.close()
        self._model.close()
        for server in self._servers.values():
            server.close()

    def _dial(self, purpose: str) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._servers[purpose].port))

    def _mutator(self, what: str) -> Mutator:
        """One for each request, whatever order others come in."""
        self._asked[what] += 1
        return Mutator(f"guest {self._seed} {what} {self._asked[what]}")

    def _control(self, request: Request) -> Sent:
        heard = request.body + str(request.headers).encode() + request.path.encode()
        if any(secret in heard for secret in self._secrets):
            self._servers["control"].mistakes.append(f"the guest heard a secret with {request.path}")
        path = request.path.partition("?")[0]
        good = control(request)
        if self._seed is None or (path == "/file" and path_of(request).startswith(GOOD)):
            return good
        mutator = self._mutator(path)
        if path in _FILES and not (self._way == "answers" and mutator.chance(0.7)):
            if good.status == 200 and mutator.chance(0.9):
                good.body = mutator.file(good.body, path_of(request))
            return good
        if (
            self._way == "files"
            or (self._only not in {"", path} and path not in _FILES)
            or not mutator.chance(self._share)
        ):
            return good
        if self._way == "answers":
            return spoiled(mutator, good, self._longest_pause)
        if self._way == "screens":
            return _other_screen(good, mutator) if path in _SCREENS else good
        good.body = (
            mutator.json(json.loads(good.body)) if good.kind == "application/json" else mutator.content(good.body)
        )
        return good

    def _chromium(self, request: Request) -> Sent:
        """Of the debugger only what is said before its websocket."""
        mutator = self._mutator("browser")
        good = chromium(request)
        return good if self._seed is None or mutator.chance(0.5) else spoiled(mutator, good, self._longest_pause)

    def _vlc(self, _request: Request) -> Sent:
        mutator = self._mutator("vlc")
        if self._seed is None:
            return Answer(STATUS_XML, "text/xml")
        if self._way == "answers":
            return spoiled(mutator, Answer(STATUS_XML, "text/xml"), self._longest_pause)
        return Answer(mutator.xml(STATUS_XML), "text/xml")


def _other_screen(good: Answer, mutator: Mutator) -> Answer:
    if good.kind == "application/json":
        tree = mutator.xml(json.loads(good.body)["AT"].encode()).decode("utf-8", "replace")
        return Answer(json.dumps({"AT": tree}).encode())
    return Answer(mutator.content(good.body), good.kind)


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


def chromium(request: Request) -> Answer:
    """The answer of Chromium's debugger."""
    if request.path.startswith("/json/list"):
        return Answer(json.dumps([{"url": "https://a.org/", "title": "A", "type": "page", "id": "1"}]).encode())
    told = {"Browser": "Chrome/140.0.0.0", "webSocketDebuggerUrl": "ws://127.0.0.1:9222/devtools/browser/1"}
    return Answer(json.dumps(told).encode())


def _file(path: str) -> tuple[bytes, str, int]:
    name = path.rpartition("/")[2]
    content = samples().get(name)
    return (
        (content, "application/octet-stream", 200) if content is not None else (b'{"error": "none"}', "text/plain", 404)
    )


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
