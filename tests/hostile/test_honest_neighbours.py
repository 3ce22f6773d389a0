"""Honest rollouts in the same workers as hostile ones: their scores, the host and the workers' memory stay as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from rollout_tasks.trajectories.reader import read_trajectory
from tests.conftest import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WORKER_MEMORY = 1500 << 20
"""Bytes, of any one process of ours."""
HOSTILE = {
    "forks": """
import os
while True: os.fork()
""",
    "threads": """
import threading, time
while True: threading.Thread(target=time.sleep, args=(1000,)).start()
""",
    "memory": """
x = []
while True: x.append(bytes(1 << 24))
""",
    "memory of the kernel": """
import socket
x = []
while True:
    a, b = socket.socketpair(); a.setblocking(False); x += [a, b]
    try:
        while True: a.send(bytes(1 << 16))
    except BlockingIOError: pass
""",
    "files": """
n = 0
while True:
    open(f'f{n}', 'w').write('x'); n += 1
""",
    "a large file": """
f = open('large', 'wb')
while True: f.write(bytes(1 << 24))
""",
    "descriptors": """
x = []
while True: x.append(open('/dev/null'))
""",
    "an endless loop": "while True: pass",
    "an endless print": "while True: print('x' * 1000000)",
    "a deep recursion": """
def f(): f()
import sys; sys.setrecursionlimit(10**9); f()
""",
    "an early end": "import os; os._exit(0)",
    "signals": """
import os, signal
for n in range(1, 4000):
    try: os.kill(n, signal.SIGKILL)
    except OSError: pass
os.kill(-1, signal.SIGKILL)
""",
    "the host's files": """
import os
for root, _, files in os.walk('/'):
    for name in files:
        try: open(os.path.join(root, name), 'ab').write(b'x')
        except OSError: pass
""",
    "the environment": """
import os
for file in ('/proc/1/environ', '/proc/self/environ'):
    print(open(file, 'rb').read())
print(os.environ)
""",
    "the network": """
import socket
for port in (22, 6379, 5672, 5555, 8000):
    try: socket.create_connection(('127.0.0.1', port), 1).send(b'FLUSHALL\\r\\n')
    except OSError as e: print(e)
""",
    "a handler that stays": """
import signal
def handle(*_):
    while True: open('more', 'ab').write(bytes(4096))
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.01)
""",
}
TEXTS = {
    "escapes": "\x1b[2J\x1b]0;owned\x07 5",
    "markup": "[bold]5[/nothing] | <script>alert(1)</script> ```",
    "zeros": "\0" * 1000,
    "a long text": "5 " * 200_000,
}


def rolled_out(name: str, code: str, answer: str, text: str = "5") -> dict[str, Any]:
    call = {"name": "python_interpreter", "arguments": {"expressions": [code.strip()]}}
    turns = [{"tool_calls": [call]}, {"tool_calls": [call]}, {"text": text}]
    return {"id": name, "env_config": {"env_mode": "py"}, "question": name, "answer": answer, "script": turns}


def items() -> list[dict[str, Any]]:
    """A hostile one, then an honest one, and so on."""
    made = []
    for number, (name, code) in enumerate(HOSTILE.items()):
        made += [rolled_out(f"hostile {name}", code, "6"), rolled_out(f"honest {number}", "print(2 + 3)", "5")]
    for name, text in TEXTS.items():
        made += [
            rolled_out(f"says {name}", "print(1)", "6", text),
            rolled_out(f"honest beside {name}", "print(5)", "5"),
        ]
    return made


def most_memory(process: subprocess.Popen[str], log: dict[str, int]) -> None:
    """Notes the most that any process of the command had, by its name; what runs in sandboxes is not ours."""
    for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
        try:
            with one.oneshot():
                words = " ".join(one.cmdline())
                if "celery" in words or "rollouts" in words or "rollout_tasks" in words:
                    log[words[:80]] = max(log.get(words[:80], 0), one.memory_info().rss)
        except psutil.NoSuchProcess:
            continue


def test_they_get_their_scores_and_the_workers_stay_small(tmp_path: Path) -> None:
    data = tmp_path / "items.jsonl"
    data.write_text("".join(json.dumps(item) + "\n" for item in items()))
    planted = tmp_path / "planted"
    planted.write_text("as it was")
    limits = "--metric final_number --num-rollouts 4 --task-timeout 40 --max-attempts 1 --run-id beside --json"
    secret = "sk-not-to-be-seen-9c41"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "rollout_tasks.cli.main",
            "run",
            "--data-path",
            str(data),
            "--env-mode",
            "py",
            *limits.split(),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "A_SECRET": secret},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    memory: dict[str, int] = {}
    deadline = time.monotonic() + 800
    try:
        while process.poll() is None:
            assert time.monotonic() < deadline
            most_memory(process, memory)
            time.sleep(0.5)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()

    folder = tmp_path / "results" / "beside"
    assert (folder / "evaluation.json").exists(), err
    report = json.loads((folder / "evaluation.json").read_text())
    rows = {row["item_id"]: row["rollouts"][0] for row in report["evaluation_results"]}
    assert len(rows) == len(items())
    for attempt in folder.glob("hostile*/0/attempt-1"):
        roles = [message["role"] for message in read_trajectory(attempt).messages]
        assert roles.count("tool") == 2, f"{attempt}: the code was not run twice"
    honest = {name: row["score"] for name, row in rows.items() if name.startswith("honest")}
    assert honest == dict.fromkeys(honest, 1.0), err[-2000:]
    assert {name: row["score"] for name, row in rows.items() if not name.startswith("honest") and row["score"]} == {}
    assert max(memory.values()) < WORKER_MEMORY, memory
    assert planted.read_text() == "as it was"
    assert "Traceback" not in err
    assert "\x1b" not in out + (folder / "report.md").read_text()
    assert not [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
