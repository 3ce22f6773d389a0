"""Cells of a user who is not root: in a user namespace, with the same walls."""

from __future__ import annotations

import json

import pytest

from tests.other_user import ID, OtherUser, needs_lent_ids
from tests.other_user import other_user as other_user

pytestmark = needs_lent_ids

PROGRAM = """
import json, os
from rollout_tasks.cells.cell import Cell, CellEnded, Handlers
from pathlib import Path
from rollout_tasks.cells.filesystem import cell_filesystem
from rollout_tasks.cells.template_process import TemplateProcess

def refuse(name):
    raise ConnectionRefusedError(name)

template = TemplateProcess("tests.integration.cells.inside", [Path("tests").resolve()])
cells = [Cell(template, ports={"control": 5000}, dial=refuse) for _ in range(3)]
nothing = Handlers({}, {})
code = '''
import os, subprocess
def can(what):
    try:
        what()
        return True
    except OSError:
        return False
result = [os.getuid(), can(lambda: os.listdir("/home")), can(lambda: open("/etc/passwd")), can(lambda: os.setuid(0)),
          can(lambda: os.kill(2, 0)), subprocess.run(["id", "-u"], capture_output=True, text=True).stdout.strip()]
'''
said = [cell.call("run", nothing, code=code) for cell in cells]
outside = {os.stat(f"/proc/{cell._watch._pid}").st_uid for cell in cells}
bomb = "import os, time\\nfor _ in range(2000):\\n    if os.fork() == 0: time.sleep(30)\\n"
try:
    cells[0].call("run", nothing, code=bomb + "time.sleep(5)")
    ended = "it went on"
except Exception as error:
    ended = str(error)
survived = cells[1].call("run", nothing, code="result = 'well'")
for cell in cells:
    cell.close()
template.stop()
found = {"said": said, "outside": sorted(outside), "ended": ended, "survived": survived}
print(json.dumps({"as_root": cell_filesystem().as_root, **found}))
"""


def test_they_hold_and_hinder_no_neighbour(other_user: OtherUser) -> None:
    done = other_user.run(".venv/bin/python", "-c", PROGRAM, seconds=60)

    if "cells cannot be made" in done.stderr or "cannot make cells" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["as_root"] is False
    assert found["said"] == [[65534, False, False, False, False, "65534"]] * 3
    assert found["outside"] == [ID]
    assert "128 processes and threads" in found["ended"] or "BlockingIOError" in found["ended"]
    assert found["survived"] == "well"
