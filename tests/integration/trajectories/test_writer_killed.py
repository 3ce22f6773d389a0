"""kill -9 in the middle of writing: what was complete is readable."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rollout_tasks.trajectories.reader import read_trajectory

WRITE_FOR_EVER = """
import os, sys
from base64 import b64encode
from itertools import count
from pathlib import Path
from rollout_tasks.environments.base import Observation, ToolCall, ToolResult
from rollout_tasks.trajectories.writer import TrajectoryWriter

writer = TrajectoryWriter(Path(sys.argv[1]))
writer.start({"pid": os.getpid()})
for turn in count(1):
    image = b"\\x89PNG" + os.urandom(50_000)
    result = ToolResult("success", f"step {turn}", Observation("t" * 9_000, (image,)))
    writer.step(turn=turn, call=ToolCall(str(turn), "act", {}), result=result, seconds=0.0)
    url = "data:image/png;base64," + b64encode(image).decode()
    content = [{"type": "text", "text": "x" * 20_000}, {"type": "image_url", "image_url": {"url": url}}]
    writer.message({"role": "user", "content": content}, turn=turn)
    print(turn, flush=True)
"""


@pytest.mark.parametrize("seed", range(3))
def test_what_was_complete_survives_kill_9(tmp_path: Path, seed: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(5):
        process.stdout.readline()
    time.sleep(random.Random(seed).uniform(0.01, 0.1))
    process.kill()
    acknowledged = 5 + len(process.stdout.readlines())
    process.wait()

    trajectory = read_trajectory(tmp_path)

    assert len(trajectory.steps) >= acknowledged
    assert len(trajectory.messages) >= acknowledged
    for step in trajectory.steps:
        assert step.observation is not None
        assert len(step.observation.images[0].read_bytes()) == 50_004
        assert len(step.observation.text) == 9_000


def test_a_full_disk_is_an_error_and_leaves_whole_lines(tmp_path: Path) -> None:
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    process = subprocess.run(
        [sys.executable, "-c", limit + WRITE_FOR_EVER, str(tmp_path)], capture_output=True, text=True, timeout=60
    )

    assert "OSError" in process.stderr
    assert "trajectory.jsonl" in process.stderr
    trajectory = read_trajectory(tmp_path)
    assert trajectory.torn is None
    assert len(trajectory.steps) >= int(process.stdout.split()[-1])
