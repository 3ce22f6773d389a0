"""What recording costs a step, and what a kill -9 takes: processes that write trajectories with screenshots, killed now and then.

Each process says which step it has recorded, as an agent would go on; afterwards every record is read, and each step that was said
must be there. Not a test: it says how fast this machine's disk is today.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rollout_tasks.environments.base import Observation, ToolCall, ToolResult
from rollout_tasks.models.base import Reply, Usage
from rollout_tasks.models.sent_messages import LeftOut
from rollout_tasks.trajectories.data_urls import data_url
from rollout_tasks.trajectories.reader import read_trajectory
from rollout_tasks.trajectories.writer import TrajectoryWriter

SHOT_BYTES = 20_000
KEPT_PICTURES = 3
"""Of a prompt; older ones are left out of it, as agents do."""


def screenshot(chance: random.Random) -> bytes:
    """Bytes that no file system can make smaller."""
    return b"\x89PNG\r\n\x1a\n" + chance.randbytes(SHOT_BYTES - 8)


def record(folder: Path, steps: int, chance: random.Random) -> Iterator[float]:
    """Records an episode; yields the seconds that each step's record took."""
    writer = TrajectoryWriter(folder)
    writer.start({"question": "bench"})
    shot = screenshot(chance)
    writer.observed(Observation("", (shot,)))
    for turn in range(1, steps + 1):
        url = data_url(shot, "png")
        message = {"role": "assistant", "content": f"click {turn}"}
        tokens = {"prompt_token_ids": list(range(2_000)), "token_ids": list(range(40)), "logprobs": [-0.5] * 40}
        reply = Reply(message, f"click {turn}", (), "stop", Usage(2_000, 40), token_data=tokens)
        call = ToolCall(f"call-{turn}", "click", {"x": turn, "y": turn})
        after = screenshot(chance)
        began = time.perf_counter()
        writer.message({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}, turn=turn)
        writer.message(message, turn=turn, reply=reply, left_out=LeftOut(max(0, turn - KEPT_PICTURES)))
        writer.step(turn=turn, call=call, result=ToolResult("success", "done", Observation("", (after,))), seconds=0.3)
        yield time.perf_counter() - began
        shot = after
    began = time.perf_counter()
    writer.finish()
    yield time.perf_counter() - began


def write(target: Path, first: int, last: int, steps: int) -> None:
    """The process: writes trajectories one after the other, and says in a file what is recorded."""
    chance = random.Random(first)
    with (target / f"said-{os.getpid()}").open("a", buffering=1) as said:
        for number in range(first, last):
            for step, seconds in enumerate(record(target / str(number), steps, chance), 1):
                said.write(f"{number} {step} {seconds}\n")


def check(folder: Path, said: int, steps: int) -> tuple[int, int, int]:
    """Returns how many steps are lost of a trajectory, and how many bytes of pictures there are, and of different ones."""
    trajectory = read_trajectory(folder, images=False)
    pictures = [path.read_bytes() for path in folder.glob("*.png")]
    different = {hashlib.sha256(one).digest(): len(one) for one in pictures}
    return max(0, min(said, steps) - len(trajectory.steps)), sum(map(len, pictures)), sum(different.values())


def read_said(target: Path, steps: int) -> tuple[dict[int, int], list[float], list[float]]:
    """Returns the last step that was said of each trajectory, and the seconds of all steps and of all ends."""
    said: dict[int, int] = {}
    seconds: list[float] = []
    ends: list[float] = []
    for file in target.glob("said-*"):
        for line in file.read_text().splitlines():
            number, step, took = line.split()
            said[int(number)] = int(step)
            (ends if int(step) > steps else seconds).append(float(took))
    return said, seconds, ends


def run(target: Path, trajectories: int, processes: int, steps: int, kills: int) -> dict[str, Any]:
    """Writes all of them, with kills at random moments; a killed process's successor goes on with the next trajectory."""
    chance = random.Random(1)
    share = trajectories // processes

    def start(at: int, end: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, __file__, "--write", str(target), str(at), str(end), str(steps)])

    began = time.monotonic()
    running = {end: start(end - share, end) for end in range(share, share * processes + 1, share)}
    killed = 0
    while running:
        time.sleep(chance.uniform(1, 3))
        for end, process in list(running.items()):
            if process.poll() is not None:
                del running[end]
        if running and killed < kills:
            end = chance.choice(list(running))
            running[end].kill()
            running[end].wait()
            killed += 1
            begun = [int(path.name) for path in target.iterdir() if path.name.isdigit()]
            running[end] = start(
                max((number for number in begun if end - share <= number < end), default=end - share - 1) + 1, end
            )
    wall = time.monotonic() - began
    said, seconds, ends = read_said(target, steps)
    progress = track(said.items(), "reading", console=Console(stderr=True))
    found = [check(target / str(number), step, steps) for number, step in progress]
    return {
        "trajectories": len(said),
        "killed": killed,
        "lost_steps": sum(lost for lost, _, _ in found),
        "picture_bytes": sum(size for _, size, _ in found),
        "different_picture_bytes": sum(size for _, _, size in found),
        "step_ms": {"p50": statistics.median(seconds) * 1000, "p99": statistics.quantiles(seconds, n=100)[98] * 1000},
        "end_ms": {"p50": statistics.median(ends) * 1000},
        "trajectories_per_second": len(said) / wall,
    }


def main(
    trajectories: Annotated[int, typer.Option(min=4, help="How many are written.")] = 10_000,
    processes: Annotated[int, typer.Option(min=1, help="How many processes write.")] = 4,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each.")] = 15,
    kills: Annotated[int, typer.Option(min=0, help="How many of the processes are killed, at least.")] = 20,
    step_seconds: Annotated[float, typer.Option(help="What a step takes without its record, for comparison.")] = 0.28,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Writes trajectories with screenshots of 20 KB from several processes, and kills some of them."""
    with tempfile.TemporaryDirectory(prefix="bench-trajectories-", dir=os.environ.get("TMPDIR")) as folder:
        found = run(Path(folder), trajectories, processes, steps, kills)
    found["share_of_a_step"] = found["step_ms"]["p50"] / 1000 / step_seconds
    if as_json:
        print(json.dumps(found))
        return
    table = Table("", "")
    for name, value in found.items():
        table.add_row(name.replace("_", " "), str(value))
    Console().print(table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
    else:
        typer.run(main)
