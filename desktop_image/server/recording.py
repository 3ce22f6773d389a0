"""Records the screen, one recording at a time.

ffmpeg writes Matroska, which stays readable however it ends; this is converted, without encoding again, into an mp4
whose index comes first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

from flask import Blueprint, Response, current_app, jsonify, send_file

from . import processes
from .problems import Problem, bad_request, too_late

blueprint = Blueprint("recording", __name__)

FRAMES_PER_SECOND = 5
"""Each takes 1.4 % of a core at 1920x1080, whatever is on the screen."""
STOP_SECONDS = 20.0
REMUX_SECONDS = 120.0
FOLDER = Path("/tmp/guest-recording")

_one_at_a_time = threading.Lock()
_running: subprocess.Popen[bytes] | None = None


@blueprint.post("/start_recording")
def start_recording() -> Response:
    """Starts recording; does nothing while a recording is running."""
    global _running
    with _one_at_a_time:
        if _running is not None and _running.poll() is None:
            return jsonify(status="success", message="Recording is already running")
        FOLDER.mkdir(mode=0o700, exist_ok=True)
        for old in FOLDER.iterdir():
            old.unlink()
        width, height = current_app.config["SCREEN"]
        command = (
            *("ffmpeg", "-y", "-nostdin", "-loglevel", "error", "-f", "x11grab", "-draw_mouse", "1"),
            *("-framerate", str(FRAMES_PER_SECOND), "-video_size", f"{width}x{height}", "-i", os.environ["DISPLAY"]),
            *("-c:v", "libx264", "-preset", "ultrafast", "-crf", "28", "-pix_fmt", "yuv420p", "-threads", "1"),
            *(
                "-vf",
                "crop=trunc(iw/2)*2:trunc(ih/2)*2",
                "-cluster_time_limit",
                "1000",
                "-flush_packets",
                "1",
                str(FOLDER / "screen.mkv"),
            ),
        )
        _running = processes.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return jsonify(status="success", message="Started recording")


@blueprint.post("/end_recording")
def end_recording() -> Response:
    """Ends the recording and returns it; a repeated call returns the same recording."""
    with _one_at_a_time:
        if _running is None:
            raise bad_request("no recording was started")
        if _running.poll() is None:
            _running.send_signal(signal.SIGINT)
            try:
                _running.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                processes.kill(_running)
        finished = FOLDER / "recording.mp4"
        if not finished.exists():
            _make_mp4(FOLDER / "screen.mkv", finished)
        return send_file(finished, mimetype="video/mp4", as_attachment=True, max_age=0)


def _make_mp4(recorded: Path, finished: Path) -> None:
    if not recorded.exists() or not recorded.stat().st_size:
        raise Problem("the recording has no pictures: it was ended too early, or ffmpeg was stopped")
    partial = finished.with_suffix(".partial.mp4")
    copying = (
        *("ffmpeg", "-y", "-nostdin", "-loglevel", "error", "-i", str(recorded), "-c", "copy"),
        *("-movflags", "+faststart", str(partial)),
    )
    try:
        done = processes.run(copying, REMUX_SECONDS)
    except Problem as problem:
        raise too_late(f"the recording could not be finished: {problem}") from problem
    if done.returncode:
        raise Problem(f"the recording could not be finished: {done.error.strip()}")
    partial.rename(finished)
