"""`rollouts openenv`: OpenEnv's own client plays episodes on leased desktops, and nothing outlives a client or the server."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from PIL import Image

from rollout_tasks.redis_client import connect
from tests.conftest import ValkeyServer
from tests.desktops import needs_local_desktops, traces
from tests.hostile.random_replies.answers import Answer, AnswerServer, Request
from tests.integration.integrations.openenv_server import (
    MINUTES,
    OPENENV,
    TOKEN,
    TTL,
    OpenEnvServer,
    environment_with,
    python_with_openenv,
)
from tests.virtual_machines import processes_naming, wait_until
from vm_pool.pool import VMPool
from vm_pool.states import Endpoint, VMState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 * MINUTES)]

ITEMS = [{"id": name, "question": f"Do the work of {name}.", "answer": ""} for name in ("one", "two", "three")]

CLIENT = """
import json, sys
from openenv.core import GenericEnvClient

env = GenericEnvClient(base_url=sys.argv[1], headers={"Authorization": f"Bearer {sys.argv[2]}"}, message_timeout_s=300).sync()
"""
PLAY = (
    CLIENT
    + """
reset, actions = json.loads(sys.argv[3]), json.loads(sys.argv[4])
with env:
    seen = [env.reset(**reset)]
    for action in actions:
        if not seen[-1].done:
            seen.append(env.step(action))
    state = env.state()
print(json.dumps({"state": state, "seen": [[one.observation, one.reward, one.done, one.metadata] for one in seen]}))
"""
)
HOLD = (
    CLIENT
    + """
import time
with env:
    env.reset()
    print("holds", flush=True)
    time.sleep(600)
"""
)
CLIENT_SECONDS = 300
"""For a client, which imports OpenEnv, on a busy machine."""
WORK = {"name": "work", "arguments": {}}


@pytest.fixture(scope="module")
def python() -> Path:
    return python_with_openenv()


@pytest.fixture(scope="module")
def valkey_of_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    made = ValkeyServer(tmp_path_factory.mktemp("valkey"), aof=False)
    made.start()
    yield made
    made.kill_at_once()


@pytest.fixture(scope="module")
def pool(valkey_of_pool: ValkeyServer) -> Iterator[VMPool]:
    """A pool of one VM, at which the server is only one of the clients."""
    with connect(tries=1, url=valkey_of_pool.url) as client:
        pool = VMPool(client)
        pool.register("vm-1", Endpoint("127.0.0.1", {}))
        yield pool
        pool.close()


def simulated(python: Path, folder: Path, *options: str, **variables: str) -> OpenEnvServer:
    items = folder / "items.jsonl"
    items.write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    return OpenEnvServer(
        python, folder, "--data-path", str(items), "--env-mode", "simulated", *options, variables=variables
    )


@pytest.fixture(scope="module")
def server(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenEnvServer]:
    """With a Valkey and VMs of its own."""
    folder = tmp_path_factory.mktemp("own")
    made = simulated(python, folder, "--num-vms", "2", "--num-rollouts", "3", "--max-turns", "6")
    yield made
    made.stop()
    assert processes_naming(str(folder)) == []


def attached_to(valkey: ValkeyServer, python: Path, folder: Path) -> OpenEnvServer:
    return simulated(python, folder, "--vm-wait", "15", "--num-rollouts", "3", ROLLOUT_REDIS_URL=valkey.url)


@pytest.fixture(scope="module")
def attached(
    python: Path, tmp_path_factory: pytest.TempPathFactory, valkey_of_pool: ValkeyServer, pool: VMPool
) -> Iterator[OpenEnvServer]:
    made = attached_to(valkey_of_pool, python, tmp_path_factory.mktemp("attached"))
    yield made
    made.stop()


@contextmanager
def holding(server: OpenEnvServer) -> Iterator[subprocess.Popen[str]]:
    """A client in the middle of an episode; killed at the end."""
    client = server.start(HOLD)
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "holds\n"
        yield client
    finally:
        client.kill()
        client.communicate()


def is_free(pool: VMPool) -> bool:
    pool.reap()
    return all(vm.state is VMState.FREE for vm in pool.status().vms)


def test_openenvs_client_plays_an_episode(server: OpenEnvServer) -> None:
    played = server.play(PLAY, json.dumps({"item_id": "two", "episode_id": "mine"}), json.dumps([WORK] * 9))
    first, *steps = played["seen"]
    observation = first[0]
    assert (observation["item_id"], observation["question"]) == ("two", "Do the work of two.")
    assert observation["text"] == "5 steps to do"
    assert [tool["function"]["name"] for tool in observation["tools"]] == ["work"]
    assert [step[1:3] for step in steps] == [[None, False]] * 4 + [[1.0, True]]
    assert steps[-1][3]["ending"] == "done"
    assert (played["state"]["episode_id"], played["state"]["step_count"]) == ("mine", 5)
    session = server.session(played["state"]["session_id"])
    assert (session["item_id"], session["reward"], session["turns"]) == ("two", 1.0, 5)


def test_wrong_calls_ends_and_limits(server: OpenEnvServer) -> None:
    wrong = {"name": "fly", "arguments": {}}
    played = server.play(PLAY, json.dumps({"seed": 2}), json.dumps([wrong, WORK, {"end": True}]))
    first, failed, _, last = played["seen"]
    assert first[0]["item_id"] == "three"
    assert (failed[0]["status"], failed[0]["response"]) == ("failed", "Tool 'fly' not found. Known: work.")
    assert last[1:3] == [1.0, True]  # what simulated episodes score does not depend on what is done
    played = server.play(PLAY, json.dumps({"seed": 2}), json.dumps([wrong] * 9))
    assert len(played["seen"]) == 1 + 6
    assert played["seen"][-1][1:3] == [0.0, True]
    assert played["seen"][-1][3]["failure_class"] == "max_turns"


def test_openenvs_own_check_passes(server: OpenEnvServer) -> None:
    check = [server.python, "-m", "openenv.cli", "validate", "--json", "--timeout", "60", "--url", server.url]
    done = subprocess.run(list(map(str, check)), capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert (done.returncode, report["passed"], report["mode"]) == (0, True, "simulation"), done.stdout + done.stderr
    assert all(one["passed"] for one in report["criteria"])


def test_nobody_plays_without_the_token(server: OpenEnvServer) -> None:
    plain = f"http://127.0.0.1:{server.port}"
    assert httpx.get(f"{plain}/health").status_code == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"x-api-key": TOKEN[:-1]}):
        refused = httpx.get(f"{plain}/schema", headers=headers)
        assert (refused.status_code, refused.json()["detail"]) == (401, "the service's token is missing or wrong")
    assert httpx.get(f"{plain}/schema", headers={"x-api-key": TOKEN}).status_code == 200
    refused_client = server.start(PLAY.replace("Bearer {", "Bearer x{"), "{}", "[]")
    assert "HTTP 403" in refused_client.communicate(timeout=CLIENT_SECONDS)[1]


MCP = (
    CLIENT
    + """
def ask(method, **params):
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return env._run(env._async._send_and_receive({"type": "mcp", "data": message}))["data"]

with env:
    early = ask("tools/list")
    env.reset()
    tools = ask("tools/list")
    calls = [ask("tools/call", name="work", arguments={}) for _ in range(5)]
print(json.dumps([early, tools, calls]))
"""
)


def test_tools_are_also_there_over_mcp(server: OpenEnvServer) -> None:
    early, listed, calls = server.play(MCP)
    assert early["error"]["message"] == "there is no episode yet: reset first"
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["work"]
    assert listed["result"]["tools"][0]["inputSchema"]["type"] == "object"
    assert calls[0]["result"]["content"] == [{"type": "text", "text": "4 steps left"}]
    assert calls[-1]["result"]["structuredContent"] == {"done": True, "reward": 1.0}


def test_items_are_listed_as_tasks(server: OpenEnvServer) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", headers={"x-api-key": TOKEN}) as client:
        assert client.get("/list_environments").json() == ["simulated"]
        assert client.get("/simulated/splits").json() == [{"name": "test", "type": "test"}]
        tasks = client.post("/simulated/tasks", json={"split": "test"}).json()["tasks"]
        assert [task["item_id"] for task in tasks] == ["one", "two", "three"]


def test_waiting_for_a_vm_is_bounded_and_told(attached: OpenEnvServer, pool: VMPool) -> None:
    with holding(attached):
        waiter = attached.start(PLAY, "{}", "[]")
        assert "place 1 in the queue of 1; the pool has 1 leased" in waiter.communicate(timeout=CLIENT_SECONDS)[1]
    wait_until(lambda: is_free(pool), seconds=TTL + 5)


def test_a_killed_client_gives_its_desktop_back(attached: OpenEnvServer, pool: VMPool) -> None:
    before = len(attached.sessions())
    with holding(attached):
        assert not is_free(pool)
    wait_until(lambda: is_free(pool), seconds=TTL + 5)
    wait_until(lambda: len(attached.sessions()) > before, seconds=20)
    ends = {(session["reward"], session["failure_class"]) for session in attached.sessions()}
    assert (None, "cancelled") in ends


def test_a_client_that_is_killed_while_it_waits_leaves_the_queue(attached: OpenEnvServer, pool: VMPool) -> None:
    with pool.acquire("another program"):
        client = attached.start(PLAY, "{}", "[]")
        wait_until(lambda: pool.status().waiters, seconds=CLIENT_SECONDS)
        client.kill()
        client.communicate()
        wait_until(lambda: not pool.status().waiters, seconds=10)


def test_a_killed_server_leaves_nothing(
    python: Path, tmp_path: Path, pool: VMPool, valkey_of_pool: ValkeyServer
) -> None:
    server = attached_to(valkey_of_pool, python, tmp_path)
    with holding(server):
        below = psutil.Process(server.process.pid).children(recursive=True)
        assert below
        os.kill(server.process.pid, signal.SIGKILL)
        wait_until(lambda: is_free(pool), seconds=TTL + 5)
        wait_until(lambda: not any(process.is_running() for process in below), seconds=30)
    server.stop()


def test_a_missing_package_is_one_sentence(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['openenv'] = None; from rollout_tasks.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", hidden, "openenv"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "error: openenv is not installed here: uv pip install openenv\n")


@pytest.fixture(scope="module")
def trainers() -> Path:
    """The Python of an environment with TRL and verifiers, without this project."""
    return environment_with("trainers-of-openenv", OPENENV, "trl==1.16.0", "verifiers==0.3.1")


def program(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def test_trl_trains_on_an_episode(server: OpenEnvServer, trainers: Path, tmp_path: Path) -> None:
    trained = server.play(program("trl_client.py"), str(tmp_path), python=trainers, seconds=600)
    assert trained == {"rewards": [1.0, 1.0], "steps": 1}


class ScriptedModel:
    """A model that answers every request with one text, and keeps the requests."""

    def __init__(self, text: str) -> None:
        self.requests: list[str] = []
        self._text = text
        self._server = AnswerServer(self._answer)
        self.url = f"http://127.0.0.1:{self._server.port}/v1"

    def close(self) -> None:
        self._server.close()
        assert self._server.mistakes == []

    def _answer(self, request: Request) -> Answer:
        self.requests.append(request.body.decode())
        message = {"role": "assistant", "content": self._text}
        reply = {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "policy",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }
        return Answer(json.dumps(reply).encode())


def test_verifiers_plays_an_episode(server: OpenEnvServer, trainers: Path) -> None:
    model = ScriptedModel(json.dumps(WORK))
    try:
        played = server.play(program("verifiers_client.py"), server.url, model.url, python=trainers, seconds=600)
    finally:
        model.close()
    assert played == {"ok": True, "errors": [], "rewards": [1.0]}
    assert len(model.requests) == 5
    assert "5 steps to do" in model.requests[0]


TASK: dict[str, Any] = {
    "id": "note",
    "snapshot": "init_state",
    "instruction": "Write 'done' into a file named note in the home folder.",
    "related_apps": [],
    "config": [],
    "evaluator": {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": "cat ~/note", "shell": True},
        "expected": {"type": "rule", "rules": {"expected": "done"}},
    },
}


@needs_local_desktops
def test_an_episode_on_a_real_desktop(python: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tasks"
    (tree / "examples" / "notes").mkdir(parents=True)
    (tree / "test_all.json").write_text(json.dumps({"notes": ["note"]}))
    (tree / "examples" / "notes" / "note.json").write_text(json.dumps(TASK))
    options = ["--env-mode", "osworld", "--provider", "local", "--num-vms", "1", "--action-space", "pyautogui"]
    options.append(
        "--trust-tasks"
    )  # cells see the packages of an environment, and not those that it borrows, as this one does
    server = OpenEnvServer(python, tmp_path, "--data-path", str(tree / "test_all.json"), *options)
    try:
        write = {"script": "open('/home/user/note', 'w').write('done')"}
        done = {"name": "desktop_control", "arguments": {"action": "done"}}
        played = server.play(
            PLAY, "{}", json.dumps([{"name": "desktop_execute_python_script", "arguments": write}, done]), seconds=600
        )
        first, wrote, last = played["seen"]
        [screenshot] = first[0]["screenshots"]
        assert Image.open(io.BytesIO(base64.b64decode(screenshot))).size == (1920, 1080)
        assert first[0]["text"]
        assert wrote[0]["status"] == "success"
        assert last[1:3] == [1.0, True]
        [session] = server.sessions()
        record = tmp_path / "results" / "sessions" / session["session_id"]
        assert {"trajectory.jsonl", "recording.mp4"} <= {path.name for path in record.iterdir()}
    finally:
        server.stop()
    assert traces(session["vm_id"]) == []
    assert processes_naming(str(tmp_path)) == []
