"""Cells as their worker uses them: calls, questions, interruptions, the ways they end, and nothing left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest

from rollout_tasks.cells.cell import CallFailed, Cell, CellEnded, Handlers
from rollout_tasks.cells.filesystem import CellFilesystem
from rollout_tasks.cells.isolation import CellLimits
from rollout_tasks.cells.template_process import TemplateProcess
from tests.integration.cells.conftest import NOTHING, TESTS, Inside, Opened, _nowhere
from tests.virtual_machines import processes_naming, wait_until


class Alarm(BaseException):
    """Breaks into a call."""


def alarm_in(seconds: float) -> None:
    def ring(_signal: int, _frame: Any) -> None:
        raise Alarm

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def processes_of(template: TemplateProcess) -> set[psutil.Process]:
    """Those that a test finds at its beginning may be an earlier test's, and just be ending."""
    return set(psutil.Process(template.pid).children(recursive=True))


def test_a_call_has_its_answer_and_the_bytes_that_go_with_it(inside: Inside) -> None:
    received = bytearray()

    value = inside.run("result, content = {'one': [1, None, 'é']}, [b'a' * 700_000, b'', b'b']", take=received.extend)

    assert value == {"one": [1, None, "é"]}
    assert bytes(received) == b"a" * 700_000 + b"b"


def test_a_cell_that_cannot_be_forked_takes_no_other_with_it() -> None:
    template = TemplateProcess("tests.integration.cells.failing_forks", [TESTS], CellFilesystem(as_root=True))
    cells = []

    def opened() -> Inside:
        cells.append(Cell(template, ports={}, dial=_nowhere))
        return Inside(cells[-1])

    try:
        first = opened()
        with pytest.raises(
            CellEnded, match=r"^a cell cannot be made: no process for it: Resource temporarily unavailable$"
        ):
            opened()
        assert [inside.run("result = 7") for inside in (first, opened())] == [7, 7]
    finally:
        for cell in cells:
            cell.close()
        template.stop()


def test_what_lasts_lasts_between_calls_and_no_longer(opened: Opened) -> None:
    first, second = opened(), opened()

    first.run("open('kept', 'w').write('here'); os.environ['KEPT'] = 'yes'")

    look = "result = [os.path.exists('kept'), os.environ.get('KEPT')]"
    assert first.run(look) == [True, "yes"]
    assert second.run(look) == [False, None]


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("raise ValueError('no such thing')", "ValueError", "no such thing"),
        ("1 / 0", "ZeroDivisionError", "division by zero"),
        ("raise SystemExit(3)", "SystemExit", "3"),
        ("result = object()", "TypeError", "Object of type object is not JSON serializable"),
        ("result = float('nan')", "ValueError", "Out of range float values are not JSON compliant"),
        ("result = '\\ud800'", None, ""),
        ("content = ['text']", "TypeError", ""),
        ("content = 5", "TypeError", ""),
    ],
)
def test_an_error_is_an_answer_and_the_cell_lives(inside: Inside, code: str, kind: str | None, message: str) -> None:
    if kind is None:
        assert inside.run(code) == "\ud800"
    else:
        with pytest.raises(CallFailed) as raised:
            inside.run(code)
        assert raised.value.kind == kind
        assert message in str(raised.value)

    assert inside.run("result = 1") == 1


def test_a_cell_asks_and_is_answered(inside: Inside) -> None:
    told: list[bytes] = []
    handlers = Handlers({"double": lambda number: (2 * number, [b"with", b" bytes"])}, {"log": told.append})

    value = inside.run(
        "service.tell('log', b'before')\nresult = [*service.ask_for_bytes('double', {'number': 21})]\n"
        "result[1] = result[1].decode()\nservice.tell('log', b'after')",
        handlers,
    )

    assert value == [42, "with bytes"]
    assert told == [b"before", b"after"]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("service.ask('nothing', {}, print)", "ValueError: unknown request"),
        ("service.ask('fails', {}, print)", "KeyError: 'lost'"),
        ("service.ask('double', {'wrong': 1}, print)", "unexpected keyword argument"),
        ("service.ask('double', {'number': None}, print)", "TypeError"),
    ],
)
def test_a_question_that_fails_says_why_in_the_cell(inside: Inside, code: str, why: str) -> None:
    def fails() -> Any:
        raise KeyError("lost")

    with pytest.raises(CallFailed) as raised:
        inside.run(code, Handlers({"fails": fails, "double": lambda number: (number * 2, None)}, {}))

    assert raised.value.kind == "RequestFailed"
    assert why in str(raised.value)


@pytest.mark.parametrize(
    "busy",
    [
        "import time\ntime.sleep(600)",
        "while True: pass",
        "service.ask('slow', {}, print)",
        "import socket\na, b = socket.socketpair()\na.recv(1)",
        "while True: service.tell('log', b'x' * 1_000_000)",
        "import subprocess\nsubprocess.run(['sleep', '600'])",
    ],
)
def test_a_call_that_is_broken_off_leaves_a_cell_that_goes_on(inside: Inside, busy: str) -> None:
    slow = Handlers({"slow": lambda: (time.sleep(600), None)}, {"log": lambda _piece: None})
    inside.run("kept = 5")
    alarm_in(1.0)
    with pytest.raises(Alarm):
        inside.run(busy, slow)

    began = time.monotonic()
    assert inside.run("result = 'still here'") == "still here"
    assert time.monotonic() - began < 5


def test_an_interruption_that_comes_late_hits_no_later_call(inside: Inside, template: TemplateProcess) -> None:
    """The broken off call has just ended by itself, and the template has no time to interrupt it."""

    def refuse(_piece: bytes) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        inside.run("service.tell('log', b'x')", Handlers({}, {"log": refuse}))
    time.sleep(0.5)  # its answer is there
    process = psutil.Process(template.pid)
    process.suspend()
    going_on = threading.Timer(0.5, process.resume)
    going_on.start()
    try:
        assert inside.run("import time\ntime.sleep(2)\nresult = 2") == 2
    finally:
        going_on.join()


def test_an_answer_that_comes_too_late_is_no_call(inside: Inside) -> None:
    """The worker was broken off when it had just answered a question, and the cell before it read that."""
    inside.cell._channel.send({"value": 1})

    assert inside.run("result = 3") == 3


def test_bytes_that_nobody_wants_any_more_are_passed_over(inside: Inside) -> None:
    def refuse(_piece: bytes) -> None:
        raise ValueError("too many")

    with pytest.raises(ValueError, match="too many"):
        inside.run("content = [b'x' * 3_000_000]", take=refuse)

    began = time.monotonic()
    assert inside.run("result = 3") == 3
    assert time.monotonic() - began < 5


def test_what_swallows_an_interruption_is_interrupted_again(inside: Inside) -> None:
    alarm_in(1.0)
    with pytest.raises(Alarm):
        inside.run(
            "import time\nfor _ in range(3):\n    try: time.sleep(600)\n    except BaseException: pass\nresult = 1"
        )

    began = time.monotonic()
    assert inside.run("result = 2") == 2
    assert time.monotonic() - began < 8


def test_what_catches_the_interruption_does_not_keep_the_worker(opened: Opened, template: TemplateProcess) -> None:
    before = processes_of(template)
    inside = opened()
    alarm_in(1.0)
    with pytest.raises(Alarm):
        inside.run("import time\nwhile True:\n    try: time.sleep(600)\n    except BaseException: pass")
    alarm_in(1.0)
    with pytest.raises(Alarm):
        inside.run("result = 1")

    began = time.monotonic()
    inside.cell.close()

    assert time.monotonic() - began < 5
    assert processes_of(template) <= before


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("os._exit(7)", "exit code 7"),
        ("import ctypes\nctypes.string_at(0)", "killed by signal 11"),
        ("channel.close()", ""),
        ("channel.socket.send(b'nonsense nonsense nonsense')", "it sent an invalid message, or one that is too long"),
        (
            "channel.socket.send(b'm' + (2**31).to_bytes(4, 'big'))",
            "it sent an invalid message, or one that is too long",
        ),
        ("channel.socket.send(b'm' + (4).to_bytes(4, 'big') + b'true')", "it sent JSON that is not an object"),
        ("channel.socket.send(b'm' + (3).to_bytes(4, 'big') + b'{]}')", "it sent invalid JSON"),
        ("channel.socket.send(b'm' + (3000).to_bytes(4, 'big') + b'[' * 3000)", "it sent invalid JSON"),
        ("channel.send({'answer': 99})", "it sent what is neither a question nor the answer"),
        ("channel.send({'what': 1})", "it sent what is neither a question nor the answer"),
    ],
)
def test_how_a_cell_ended_is_said(inside: Inside, code: str, how: str) -> None:
    with pytest.raises(CellEnded) as raised:
        inside.run(code)

    assert how in str(raised.value)
    with pytest.raises(CellEnded):
        inside.run("result = 1")


def test_a_template_that_says_nothing_has_not_ended(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    doomed = opened()
    its_template = psutil.Process(doomed.cell._watch._pid).parent()
    assert its_template is not None
    its_template.suspend()
    try:
        monkeypatch.setattr("rollout_tasks.cells.cell.END_SECONDS", 0.5)
        with pytest.raises(CellEnded, match=r"ended: the template of cells does not say how within 0\.5 s$"):
            doomed.run("os._exit(7)")
    finally:
        its_template.resume()


def test_too_much_memory_ends_it_and_says_so(opened: Opened) -> None:
    inside = opened(limits=CellLimits(memory_bytes=200 << 20))

    with pytest.raises(CellEnded, match="it used more than 200 MiB of memory"):
        inside.run(
            "import os, time\n"
            "for _ in range(3):\n    if os.fork() == 0:\n        kept = b'x' * (90 << 20)\n        time.sleep(60)\n"
            "time.sleep(60)"
        )


def test_one_process_cannot_have_more_than_all_may(opened: Opened) -> None:
    inside = opened(limits=CellLimits(memory_bytes=200 << 20))

    with pytest.raises(CallFailed) as raised:
        inside.run("kept = bytearray(400 << 20)")

    assert raised.value.kind == "MemoryError"


def test_a_cell_that_is_closed_takes_everything_with_it(opened: Opened, template: TemplateProcess) -> None:
    before = processes_of(template)
    inside = opened()
    inside.run(
        "import subprocess, os\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "if os.fork() == 0:\n    if os.fork() == 0:\n        os.setsid()\n        import time\n        time.sleep(600)\n"
        "    os._exit(0)"
    )
    assert len(processes_of(template) - before) > 1

    inside.cell.close()
    inside.cell.close()

    assert processes_of(template) <= before


def test_nothing_is_open_in_a_cell_but_its_channel(inside: Inside) -> None:
    code = """
import contextlib
result = []
for descriptor in range(3, 1024):
    with contextlib.suppress(OSError):
        os.fstat(descriptor)
        result.append(descriptor)
result.remove(channel.socket.fileno())
"""
    assert inside.run(code) == []


def test_many_in_a_row_leave_nothing(opened: Opened, template: TemplateProcess) -> None:
    opened().cell.close()
    process = psutil.Process()
    here, there, threads = process.num_fds(), psutil.Process(template.pid), process.num_threads()
    room = psutil.Process(template.pid).children(recursive=True)[0]
    held = room.num_fds()

    for _ in range(30):
        inside = opened(ports={"control": 5000}, hosts=["a.example"])
        assert inside.run("result = 1") == 1
        inside.cell.close()

    wait_until(lambda: process.num_threads() <= threads)
    assert process.num_fds() == here
    assert room.num_fds() == held
    assert there.is_running()


def test_a_cell_reaches_what_it_was_given_and_nothing_else(opened: Opened) -> None:
    class Page(BaseHTTPRequestHandler):
        seen: ClassVar[list[str]] = []

        def do_GET(self) -> None:
            self.seen.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        dialled: list[str] = []

        def dial(name: str) -> socket.socket:
            dialled.append(name)
            return socket.create_connection(server.server_address[:2])

        inside = opened(ports={"control": 5000, "other": 8006}, dial=dial, hosts=["files.example"])
        get = "import urllib.request\nresult = urllib.request.urlopen('http://{}/x', timeout=5).read().decode()"
        assert inside.run(get.format("127.0.0.1:5000")) == "hello"
        assert inside.run(get.format("localhost:8006")) == "hello"
        assert inside.run(get.format("files.example:443")) == "hello"
        assert dialled == ["control", "other", "files.example"]
        for elsewhere in (f"127.0.0.1:{server.server_address[1]}", "10.0.0.1", "files.example", "other.example"):
            with pytest.raises(CallFailed) as raised:
                inside.run(get.format(elsewhere))
            assert raised.value.kind == "URLError"
        server.shutdown()


def test_a_template_that_died_is_started_again() -> None:
    template = TemplateProcess("tests.integration.cells.inside", [TESTS])
    try:
        doomed = Cell(template, ports={}, dial=_refuse)
        first = template.pid
        os.kill(first, signal.SIGKILL)
        with pytest.raises(CellEnded, match=r"the template of cells ended$"):
            doomed.call("run", NOTHING, code="import time\ntime.sleep(60)")
        doomed.close()

        wait_until(lambda: template.pid != first and psutil.pid_exists(template.pid), seconds=30)
        again = Cell(template, ports={}, dial=_refuse)
        assert again.call("run", NOTHING, code="result = 2") == 2
        again.close()
    finally:
        template.stop()
        template.stop()
    assert not [one for one in Path("/tmp").glob("cells-*") if one == template._folder.path]  # noqa: S108


def test_a_template_that_is_being_started_again_holds_up_no_end(tmp_path: Path) -> None:
    package = tmp_path / "slow_to_start"
    package.mkdir()
    (package / "__init__.py").write_text("def serve(connection):\n    pass\n")
    template = TemplateProcess(package.name, [package])
    try:
        first = {line.split()[0] for line in processes_naming(package.name)}
        (package / "__init__.py").write_text("import time\ntime.sleep(600)\n")
        os.kill(template.pid, signal.SIGKILL)
        wait_until(lambda: {line.split()[0] for line in processes_naming(package.name)} - first, seconds=30)
        began = time.monotonic()
    finally:
        template.stop()

    assert time.monotonic() - began < 5
    wait_until(lambda: processes_naming(package.name) == [], seconds=5)


def test_cells_end_with_the_process_that_has_the_template(tmp_path: Path) -> None:
    program = f"""
import sys, time
sys.path.insert(0, {str(TESTS.parent)!r})
from tests.integration.cells.test_cells import Cell, NOTHING, TESTS, TemplateProcess, _refuse
template = TemplateProcess("tests.integration.cells.inside", [TESTS])
cell = Cell(template, ports={{}}, dial=_refuse)
print(template.pid, flush=True)
cell.call("run", NOTHING, code="import time\\ntime.sleep(600)")
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    assert owner.stdout is not None
    template = psutil.Process(int(owner.stdout.readline()))
    wait_until(lambda: len(template.children(recursive=True)) >= 2)
    left = [template, *template.children(recursive=True)]

    owner.kill()
    owner.wait()

    _, alive = psutil.wait_procs(left, timeout=10)
    assert alive == []


def test_a_killed_workers_child_takes_its_cell_with_it(template: TemplateProcess) -> None:
    before = processes_of(template)
    child = os.fork()
    if child == 0:
        try:
            Cell(template, ports={}, dial=_refuse).call("run", NOTHING, code="import time\ntime.sleep(600)")
        finally:
            os._exit(1)
    wait_until(lambda: processes_of(template) - before)

    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

    wait_until(lambda: processes_of(template) <= before)


def test_several_at_a_time_do_not_hinder_each_other(opened: Opened) -> None:
    cells = [opened() for _ in range(8)]
    answers: dict[int, Any] = {}

    def work(number: int) -> None:
        answers[number] = cells[number].run(f"import time\ntime.sleep(2)\nresult = {number}")

    began = time.monotonic()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == {number: number for number in range(8)}
    assert time.monotonic() - began < 10


def _refuse(name: str) -> socket.socket:
    raise ConnectionRefusedError(name)
