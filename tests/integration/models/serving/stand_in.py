"""A program that is started as `vllm` is: it serves a model, with a process of its own beside it, or fails as told.

Its weights are the bytes of its checkpoint, and told as the fingerprint of a reply. It loads others as vLLM does.

What it is to do is in its checkpoint's ``config.json``: ``fails`` (it prints an error and ends), ``silent`` (it never listens),
``once`` (a file; it ends like that only while the file is not there, and makes it), ``unloadable`` (another server cannot
load it), ``ignored`` (another server says that it has loaded it, and has not).
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CHECKPOINT = Path(sys.argv[2])
OPTIONS = dict(zip(sys.argv[3::2], sys.argv[4::2], strict=False))
TOLD = json.loads((CHECKPOINT / "config.json").read_text())
MODEL = OPTIONS["--served-model-name"]
stopping = threading.Event()


def weights_of(checkpoint: Path) -> str:
    file = checkpoint / "model.safetensors"
    return hashlib.sha256(file.read_bytes() if file.exists() else b"").hexdigest()


weights = weights_of(CHECKPOINT)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.reply({"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "vllm"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
        if not self.path.startswith("/v1/"):
            self.control(body)
            return
        if "die" in json.dumps(body["messages"]):
            os._exit(3)
        if "slowly" in json.dumps(body["messages"]):
            time.sleep(2)
        message = {"role": "assistant", "content": f"from {os.getpid()} with {os.environ.get('CUDA_VISIBLE_DEVICES')}"}
        with_weights = weights
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        self.reply({"model": MODEL, "system_fingerprint": with_weights, "choices": [choice], "usage": usage})

    def control(self, body: dict[str, Any]) -> None:
        global weights
        print("control", self.path, body, flush=True)
        answer: dict[str, Any] = {"success": True}
        if self.path == "/collective_rpc":
            assert body["method"] == "reload_weights"
            folder = Path(body["kwargs"]["weights_path"])
            told = json.loads((folder / "config.json").read_text())
            if told.get("unloadable"):
                self.send_error(500, "its engine is dead")
                return
            if not told.get("ignored"):
                weights = weights_of(folder)
        elif self.path == "/weight_checker":
            answer = {"checksums": {"all": weights}}
        self.reply(answer, os.environ["ROLLOUTS_CONTROL_SECRET"])

    def reply(self, body: dict[str, Any], key: str | None = os.environ.get("VLLM_API_KEY")) -> None:
        allowed = not key or self.headers.get("Authorization") == f"Bearer {key}"
        content = json.dumps(body if allowed else {"error": "Unauthorized"}).encode()
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    assert sys.argv[1] == "serve"
    assert OPTIONS["--shutdown-timeout"] == "20"
    engine = subprocess.Popen(["sleep", "1000"])
    print(f"(EngineCore pid={engine.pid}) INFO 11-28 00:00:00 [core.py:1] ready", flush=True)
    once = TOLD.get("once")
    if TOLD.get("fails") and not (once and Path(once).exists()):
        if once:
            Path(once).touch()
        print(f"\x1b[31m(APIServer pid={os.getpid()}) ValueError: {TOLD['fails']}\x1b[0m", flush=True)
        print("(APIServer pid=1)   so it is not served", flush=True)
        print("it goes down", flush=True)
        raise SystemExit(1)
    if TOLD.get("silent"):
        time.sleep(1000)
    server = ThreadingHTTPServer((OPTIONS["--host"], int(OPTIONS["--port"])), Handler)
    server.daemon_threads = False
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever(0.05)
    server.server_close()  # the calls that it has are finished
    engine.terminate()
    engine.wait()


main()
