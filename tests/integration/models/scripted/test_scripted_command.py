"""The command's life: where it says it is, what it refuses, and that it never stays behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import psutil
import pytest

from rollout_tasks.errors import UserError
from rollout_tasks.models.scripted.process import ScriptedModelProcess
from tests.integration.models.scripted.clients import EXAMPLES, REPOSITORY

COMMAND = [sys.executable, str(REPOSITORY / "scripts" / "scripted_model.py")]


def run(*options, **environment):
    return subprocess.run(
        [*COMMAND, *map(str, options)], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )


@pytest.fixture
def started():
    """Starts the command and gives it with the line it printed; kills what a test left running."""
    processes = []

    def started(*options):
        command = [*COMMAND, "--data-path", str(EXAMPLES), *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process, process.stdout.readline()

    yield started
    for process in processes:
        process.kill()
        process.communicate()


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(condition, what):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_serves_and_stops_quietly(started, stop):
    process, line = started("--json")
    told = json.loads(line)

    assert told["pid"] == process.pid
    assert httpx.get(f"{told['url']}/models").status_code == 200
    process.send_signal(stop)
    _, errors = process.communicate(timeout=60)

    assert errors == ""


def test_it_stops_though_a_client_is_waiting(started, tmp_path):
    faults = tmp_path / "faults.json"
    faults.write_text('[{"kind": "hang"}]')
    process, line = started("--json", "--faults", str(faults))
    url = httpx.URL(json.loads(line)["url"])
    body = json.dumps({"messages": [{"role": "user", "content": ""}]}).encode()
    head = f"POST {url.path}/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"

    with socket.create_connection((url.host, url.port)) as waiting:
        waiting.sendall(f"{head}X-Session-Id: run/lock-codes/0/1\r\n\r\n".encode() + body)
        wait_until(lambda: "in_flight 1" in httpx.get(url.copy_with(path="/metrics")).text, "the request to arrive")
        process.terminate()
        _, errors = process.communicate(timeout=60)

    assert errors == ""


def test_for_people_it_says_how_many_items_have_a_script(started):
    process, line = started()
    process.terminate()
    process.communicate(timeout=60)

    assert line.startswith("Scripted model at http://127.0.0.1:")
    assert line.endswith("/v1: 25 of 25 items have a script\n")


def test_what_is_wrong_is_said_in_one_sentence(tmp_path):
    bare, broken = tmp_path / "bare.jsonl", tmp_path / "broken.json"
    bare.write_text('{"question": "Why?", "answer": "So."}\n')
    broken.write_text("[")
    taken = socket.create_server(("127.0.0.1", 0))
    cases = {
        ("--data-path", tmp_path / "none.jsonl"): "none.jsonl",
        ("--data-path", bare): "none of its 1 items has a script or a worked answer",
        ("--data-path", EXAMPLES, "--script-file", broken): "broken.json: is not JSON",
        ("--data-path", EXAMPLES, "--faults", broken): "broken.json: is not JSON",
        ("--data-path", EXAMPLES, "--corrupt", 26): "cannot corrupt 26 answers",
        ("--data-path", EXAMPLES, "--host", "192.0.2.1"): "set SCRIPTED_MODEL_API_KEY",
        ("--data-path", EXAMPLES, "--port", taken.getsockname()[1]): "cannot listen on 127.0.0.1",
    }

    with taken:
        for options, said in cases.items():
            done = run(*options, SCRIPTED_MODEL_API_KEY="")
            assert (done.returncode, done.stdout) == (2, ""), options
            assert done.stderr.startswith("scripted model: "), options
            assert said in done.stderr
            assert done.stderr.count("\n") == 1


def test_a_programs_server_repeats_what_is_wrong(tmp_path):
    server = ScriptedModelProcess(tmp_path / "none.jsonl")

    with pytest.raises(UserError, match=r"none\.jsonl"):
        server.start()

    assert server.pid is None


@pytest.mark.usefixtures("misleading_folder")
def test_files_in_the_current_folder_replace_no_module_of_a_programs_server():
    with ScriptedModelProcess(EXAMPLES) as server:
        server.check()


def test_a_programs_server_is_gone_after_its_block():
    with ScriptedModelProcess(EXAMPLES) as server:
        pid = server.pid
        assert httpx.get(f"{server.url}/models").status_code == 200

    assert not psutil.pid_exists(pid)
    server.stop()


def test_ctrl_c_in_the_terminal_does_not_reach_a_programs_server():
    with ScriptedModelProcess(EXAMPLES) as server:
        assert os.getpgid(server.pid) != os.getpgid(0)


def test_a_programs_server_does_not_outlive_a_killed_program():
    program = (
        "import sys, time; from pathlib import Path\n"
        "from rollout_tasks.models.scripted.process import ScriptedModelProcess\n"
        "server = ScriptedModelProcess(Path(sys.argv[1])); server.start()\n"
        "print(server.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(EXAMPLES)], stdout=subprocess.PIPE, text=True)
    server_pid = int(parent.stdout.readline())

    parent.kill()
    parent.communicate()

    try:
        wait_until(lambda: gone(server_pid), "the server to end")
    finally:
        if not gone(server_pid):
            os.kill(server_pid, signal.SIGKILL)
