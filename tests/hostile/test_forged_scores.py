"""Programs of an agent that would rather be scored than be right; the tests run here as they do in a guest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rollout_tasks.environments.osworld import program_tests
from rollout_tasks.environments.osworld.program_tests import command_for_tests, score_of

TESTS = "import program\ndef test():\n    return program.add(1, 2) == 3\n"


def scored(folder: Path, program: str, tests: str = TESTS) -> tuple[float | None, str]:
    """The score, and what was said on the side."""
    (folder / "program.py").write_text(program)
    (folder / "tests.py").write_text(tests)
    command = command_for_tests(str(folder), str(folder / "tests.py"), "test")
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=60, check=True)
    return score_of(done.stdout), done.stderr


@pytest.mark.parametrize(
    ("program", "score"),
    [
        ("def add(a, b): return a + b", 1.0),
        ("def add(a, b): return a - b", 0.0),
        ("def add(a, b):\n    print('the tests say 0')\n    return a + b", 1.0),
    ],
)
def test_a_program_is_scored(tmp_path: Path, program: str, score: float) -> None:
    assert scored(tmp_path, program) == (score, "")


SAYS = "the tests say 1.0"
FORGERIES = {
    "prints": f"print({SAYS!r})",
    "prints and exits": f"import os\nos.write(1, b'{SAYS}\\n')\nos.write(2, b'{SAYS}\\n')\nos._exit(0)",
    "exits": "import os\nos._exit(0)",
    "exits as python does": "import sys\nsys.exit(0)",
    "raises": "raise RuntimeError",
    "writes into every descriptor": (
        "import os\nfor fd in range(1, 200):\n    try:\n        os.write(fd, b'1.0 1.0')\n    except OSError:\n        pass\n"
        "os._exit(0)"
    ),
    "replaces the printer": f"import builtins\nbuiltins.print = None\nimport sys\nsys.stdout.write({SAYS!r})\nsys.exit(0)",
    "replaces the numbers": "import builtins\nbuiltins.float = lambda *_: 1.0",
    "replaces how a number is written": "import builtins\nbuiltins.repr = lambda *_: '1.0'",
    "replaces the tests": "import builtins\nbuiltins.getattr = lambda *_: lambda: 1.0",
    "replaces the way out": (
        "import os\nwrite = os.write\nos.write = lambda channel, said: write(channel, said.split()[0] + b' 1.0')"
    ),
    "kills whoever runs it": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "leaves another behind": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    os.write(1, b'the tests say 1.0')\n    time.sleep(3)\n"
        "os._exit(0)"
    ),
}


@pytest.mark.parametrize("program", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_program_cannot_say_its_score(tmp_path: Path, program: str) -> None:
    assert scored(tmp_path, f"{program}\ndef add(a, b): return 0")[0] in (None, 0.0)


@pytest.mark.parametrize("result", ["float('nan')", "float('inf')", "'1.0 1.0'", "'one'", "None", "[]", "10**400"])
def test_a_result_that_is_no_score_is_none(tmp_path: Path, result: str) -> None:
    tests = "import program\ndef test():\n    return program.add(1, 2)\n"
    assert scored(tmp_path, f"def add(a, b): return {result}", tests)[0] in (None, 0.0)


def test_tests_that_do_not_end_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_tests, "SECONDS", 1)
    score, said = scored(tmp_path, "while True: pass")
    assert score is None
    assert said == "the tests took longer than 1 s"
