"""A task's tests of a program that the agent wrote: the Python that runs them in the guest, and how its output is read.

Tests and program share a process in the guest, so the program may print, exit or raise anything. The tests therefore
report through a pipe, signed with a word that their process gets when it starts and that is in no file, argument or
environment variable. A program that searches its own process for it can still find it, or change its tests: the guest is the
agent's. What such a score is worth, docs/trust.md says.
"""

from __future__ import annotations

import math

SECONDS = 100
"""For all tests; the guest's server ends a command after 120 s."""
_SAID = "the tests say"
_CHILD = """\
import importlib.util, os, sys
# What the program could replace is taken before it is imported.
def report(function_of=getattr, number=float, shown=repr, write=os.write):
    folder, test, function, channel = sys.argv[1:]
    sign, channel = sys.stdin.read(), int(channel)
    sys.argv[1:] = []
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location("the_tests", test)
    tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests)
    score = number(function_of(tests, function)())
    write(channel, (sign + " " + shown(score)).encode())
report()
"""
_PARENT = """\
import os, secrets, signal, subprocess, sys
sign = secrets.token_hex(16)
heard, channel = os.pipe()
command = [sys.executable, "-c", {child!r}, {folder!r}, {test!r}, {function!r}, str(channel)]
child = subprocess.Popen(
    command, cwd={folder!r}, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[channel], start_new_session=True
)
try:
    child.communicate(sign.encode(), timeout={seconds})
except subprocess.TimeoutExpired:
    sys.stderr.write("the tests took longer than {seconds} s")
try:
    os.killpg(child.pid, signal.SIGKILL)
except OSError:
    pass
child.wait()
os.set_blocking(heard, False)
try:
    words = os.read(heard, 1000).decode(errors="replace").split()
except BlockingIOError:
    words = []
if child.returncode == 0 and len(words) == 2 and words[0] == sign:
    print({said!r}, words[1])
"""


def command_for_tests(folder: str, test: str, function: str) -> str:
    """Returns the Python that runs a task's tests in the guest.

    Args:
        folder: The folder of the agent's files, in the guest.
        test: The path of the tests.
        function: The tests' function that returns the score.
    """
    return _PARENT.format(child=_CHILD, folder=folder, test=test, function=function, seconds=SECONDS, said=_SAID)


def score_of(output: str) -> float | None:
    """Returns the score in [0, 1] that `command_for_tests` printed; None if the tests did not finish."""
    said = [line.removeprefix(_SAID) for line in output.splitlines() if line.startswith(_SAID)]
    if len(said) != 1:
        return None
    score = float(said[0])
    return min(max(score, 0.0), 1.0) if math.isfinite(score) else 0.0
