"""The interpreter as agents get it: what they are offered, what they are told, and that nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import psutil
import pytest

from benchmark.items import Item
from rollout_tasks.cells import system_calls
from rollout_tasks.config import RunConfig
from rollout_tasks.environments import py
from rollout_tasks.environments.base import EnvironmentContext, ToolCall, ToolResult
from rollout_tasks.environments.py import LOST, PyEnvironment
from rollout_tasks.environments.sandbox import bubblewrap
from rollout_tasks.environments.sandbox import interpreter as interpreter_module
from rollout_tasks.environments.sandbox.bubblewrap import SandboxUnavailable
from rollout_tasks.environments.sandbox.interpreter import Interpreter, InterpreterStopped, SandboxLimits


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    py._reason_against_isolation.cache_clear()
    yield
    py._reason_against_isolation.cache_clear()


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[PyEnvironment]:
    environment = PyEnvironment(EnvironmentContext(RunConfig(), tmp_path, None))
    yield environment
    environment.close()


@pytest.fixture
def others() -> set[int]:
    """Processes that were there before: the test session's own servers."""
    return {child.pid for child in psutil.Process().children()}


def ours(others: set[int]) -> list[psutil.Process]:
    """Processes that the test has started and that are still there."""
    return [child for child in psutil.Process().children() if child.pid not in others]


def run(environment: PyEnvironment, *code: str) -> ToolResult:
    return environment.execute(ToolCall("c", "python_interpreter", {"expressions": list(code)}))


def other_bwrap(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_the_offer_says_what_a_call_must_look_like(environment: PyEnvironment) -> None:
    (tool,) = environment.tools()

    jsonschema.Draft202012Validator.check_schema(tool.parameters)
    accepts = jsonschema.Draft202012Validator(tool.parameters).is_valid
    assert accepts({"expressions": ["1 + 1", "2"]})
    assert accepts({"expressions": ["1"]})
    for wrong in (
        {},
        {"expressions": []},
        {"expressions": "1"},
        {"expressions": [1]},
        [],
        {"expressions": ["1"], "x": 1},
    ):
        assert not accepts(wrong), wrong
    assert "math.comb(10, 3)" in tool.parameters["properties"]["expressions"]["description"]
    assert tool.name == "python_interpreter"
    assert "Standard library only" in tool.description
    assert "interpreter" in environment.instructions(Item("1", "?"))
    assert environment.evaluate() is None


def test_after_a_stop_the_next_call_starts_anew(environment: PyEnvironment) -> None:
    run(environment, "x = 1")

    stopped = run(environment, "import os\nos._exit(3)")

    assert stopped == ToolResult("failed", f"The interpreter was stopped: it ended with exit status 3. {LOST}")
    assert run(environment, "'x' in globals()") == ToolResult("success", "False")


def test_what_failed_says_how_much_was_not_run(environment: PyEnvironment) -> None:
    failed = run(environment, "print('a\\n')", "1 / 0", "2", "3", "4")

    assert failed.status == "failed"
    assert failed.response.startswith("a\n\nTraceback")
    assert failed.response.endswith("ZeroDivisionError: division by zero\n(3 more not run)")
    assert "guest.py" not in failed.response
    assert "    1 / 0\n" in failed.response


def test_annotations_are_what_python_makes_of_them(environment: PyEnvironment) -> None:
    """The interpreter's program has a future statement of its own; code has it only where it says so."""
    code = (
        "from dataclasses import dataclass\nfrom typing import ClassVar\n@dataclass\nclass A:\n    x: ClassVar[dict] = {}",
        "def f(a: int): pass\nf.__annotations__",
        "from __future__ import annotations\ndef f(a: int): pass\nf.__annotations__",
        "import __future__\n(lambda: 0).__code__.co_flags & __future__.annotations.compiler_flag",
    )

    done = run(environment, *code)

    assert done.response.splitlines() == ["{'a': <class 'int'>}", "{'a': 'int'}", "0"]


def held() -> Counter[str]:
    """What this process has open, but for connections, which other tests' threads make meanwhile."""
    theirs = {connection.fd for connection in psutil.Process().net_connections("inet")}
    links: Counter[str] = Counter()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            link = str(descriptor.readlink())
            if int(descriptor.name) not in theirs and not link.startswith("anon_inode:"):
                links[link] += 1
    return links


def test_closing_ends_the_process_and_may_be_repeated(environment: PyEnvironment, others: set[int]) -> None:
    before = held()
    run(environment, "1")
    assert ours(others)

    environment.close()
    environment.close()

    assert ours(others) == []
    deadline = time.monotonic() + 10
    while left := held() - before:  # for a moment, other tests' threads open things too
        assert time.monotonic() < deadline, f"left open: {left}"
        time.sleep(0.05)
    assert run(environment, "2").response == "2"


def test_a_machine_that_isolates_serves_it(others: set[int]) -> None:
    PyEnvironment.check_available()

    assert py._reason_against_isolation() is None
    assert ours(others) == []


def test_a_machine_without_bubblewrap_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(RuntimeError, match=r"^running Python safely needs bubblewrap: install it"):
        PyEnvironment.check_available()


def test_walls_without_a_filter_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Both processes answer then, one after the other or at once.
    everything = bubblewrap.SYSTEM_CALLS | system_calls.PROCESSES | system_calls.SOCKETS
    monkeypatch.setattr(bubblewrap, "SYSTEM_CALLS", everything)

    with pytest.raises(RuntimeError, match=r"^the sandbox does not (hold|work) here: "):
        PyEnvironment.check_available()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'no luck' >&2; exit 1", "cannot isolate here (no luck)"),
        ("printf '\\377bad\\n' >&2; exit 1", "cannot isolate here (\ufffdbad)"),
        ("printf 'ready\\n'; exec sleep 60", "cannot isolate here (no reason given)"),
        ("printf 'hello\\n'; exec sleep 60", "cannot isolate here (no reason given)"),
        ("exec sleep 60", "cannot isolate here (no reason given)"),
    ],
)
def test_a_start_that_fails_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, others: set[int], script: str, said: str
) -> None:
    monkeypatch.setattr(interpreter_module, "_START_SECONDS", 3.0)
    before = held()
    other_bwrap(tmp_path, monkeypatch, script)

    with pytest.raises(SandboxUnavailable) as raised:
        Interpreter()

    assert said in str(raised.value)
    assert ours(others) == []
    deadline = time.monotonic() + 10
    while left := held() - before:  # for a moment, other tests' threads open things too
        assert time.monotonic() < deadline, f"left open: {left}"
        time.sleep(0.05)


@pytest.mark.parametrize(("status", "said"), [(127, "exit status 127"), (128, "killed by signal 0"), (137, "signal 9")])
def test_the_end_is_told_by_its_status(status: int, said: str) -> None:
    interpreter = Interpreter(SandboxLimits(seconds=60))

    with pytest.raises(InterpreterStopped, match=said):
        interpreter.run([f"import os\nos._exit({status})"])


def test_standard_streams_lead_nowhere(environment: PyEnvironment) -> None:
    seen = run(
        environment,
        "import os",
        "def tried(f, *a):\n    try: return f(*a)\n    except OSError as e: return type(e).__name__",
        "[tried(os.read, 0, 1), tried(os.write, 1, b'x'), tried(os.write, 2, b'x')]",
    )

    assert seen.response == "[b'', 'BrokenPipeError', 'BrokenPipeError']"


def test_a_program_that_ends_without_reading_what_it_was_sent_is_told_by_its_end() -> None:
    interpreter = Interpreter(SandboxLimits(seconds=60))
    early = b'{"ok": true, "output": "", "not_run": 0}\n'
    assert interpreter.run([f"import os, time\nos.write(4, {early!r})\ntime.sleep(1)\nos._exit(5)"]).ok

    with pytest.raises(InterpreterStopped, match="it ended with exit status 5"):
        interpreter.run(["1"])


def test_code_needs_no_vm_and_its_answers_are_compared() -> None:
    item = Item(id="1", question="")
    assert not PyEnvironment.needs_vm_for(RunConfig(), item)
    assert PyEnvironment.compares_answers
