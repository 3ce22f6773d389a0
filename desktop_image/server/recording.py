"""Records the screen, one recording at a time.

ffmpeg writes Matroska, which stays readable however it ends; this is converted, without encoding again, into an mp4
whose index comes first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO

from flask import Blueprint, Response, current_app, jsonify, send_file

from . import processes
from .polling import wait_until
from .problems import Problem, bad_request, too_late

blueprint = Blueprint("recording", __name__)

FRAMES_PER_SECOND = 5
"""Each takes 1.4 % of a core at 1920x1080, whatever is on the screen."""
FIRST_PICTURE_SECONDS = 20.0
"""How long a recording that is to end waits for its first picture: on a loaded machine ffmpeg takes seconds to start."""
STOP_SECONDS = 20.0
REMUX_SECONDS = 120.0
FOLDER = Path("/tmp/guest-recording")
RECORDED = FOLDER / "screen.mkv"
SAID_BYTES = 500
"""How much of ffmpeg's last words an error repeats."""

_one_at_a_time = threading.Lock()
_running: subprocess.Popen[bytes] | None = None
_said: IO[bytes] | None = None
"""What ffmpeg writes to stderr; a file without a name, which no program of the user can put something else in place of."""


@blueprint.post("/start_recording")
def start_recording() -> Response:
    """Starts recording; does nothing while a recording is running."""
    global _running, _said
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
                str(RECORDED),
            ),
        )
        if _said is not None:
            _said.close()
        _said = tempfile.TemporaryFile()  # noqa: SIM115 (as long as ffmpeg writes)
        _running = processes.start(command, stdout=subprocess.DEVNULL, stderr=_said.fileno())
    return jsonify(status="success", message="Started recording")


@blueprint.post("/end_recording")
def end_recording() -> Response:
    """Ends the recording and returns it; a repeated call returns the same recording."""
    with _one_at_a_time:
        if _running is None:
            raise bad_request("no recording was started")
        _wait_for_a_picture(_running)
        if _running.poll() is None:
            _running.send_signal(signal.SIGINT)
            try:
                _running.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                processes.kill(_running)
        finished = FOLDER / "recording.mp4"
        if not finished.exists():
            _make_mp4(RECORDED, finished)
        return send_file(finished, mimetype="video/mp4", as_attachment=True, max_age=0)


def _wait_for_a_picture(recorder: subprocess.Popen[bytes]) -> None:
    """Waits until something is recorded, the recorder has ended, or `FIRST_PICTURE_SECONDS` have passed."""
    wait_until(lambda: _has_content(RECORDED) or recorder.poll() is not None, FIRST_PICTURE_SECONDS)


def _last_words() -> str:
    if _said is None:
        return ""
    size = os.fstat(_said.fileno()).st_size
    said = os.pread(_said.fileno(), SAID_BYTES, max(0, size - SAID_BYTES))
    return " ".join(said.decode("utf-8", "replace").split())


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _make_mp4(recorded: Path, finished: Path) -> None:
    if not _has_content(recorded):
        raise Problem(
            f"the recording has no pictures: {_last_words() or 'ffmpeg was stopped before it could take one'}"
        )
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
