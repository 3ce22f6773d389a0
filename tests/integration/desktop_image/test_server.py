"""What the guest's server does when things are odd: slow, broken, killed, many at once."""

from __future__ import annotations

import io
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
from PIL import Image

from tests.desktops import processes
from tests.integration.desktop_image.conftest import SCREEN, Desktop

PREFIX = "import pyautogui; import time; pyautogui.FAILSAFE = False; "


def execute(desktop: Desktop, *command: str) -> dict[str, Any]:
    reply: dict[str, Any] = requests.post(desktop.url("/execute"), json={"command": command}, timeout=130).json()
    return reply


@pytest.mark.parametrize(
    "code",
    [
        "print(pyautogui.size(), __name__)",
        "import os, sys; print(os.getcwd(), sys.argv, sys.path, os.getuid(), sorted(os.environ)); sys.stderr.write('said')",
        "1 / 0",
        "pyautogui.write(",
        "\ndef broken():\n    raise ValueError('so')\nbroken()",
        "import sys; sys.exit(7)",
        "import sys; sys.exit('gone')",
        "import os; os.kill(os.getpid(), 9)",
        "import atexit; atexit.register(print, 'at the end')",
        "import threading; threading.Timer(0.2, print, ['late']).start()",
        "import subprocess; print(subprocess.run(['echo', 'child'], capture_output=True))",
        "print(open('/proc/self/stat').read().split()[4:6] == [str(__import__('os').getpid())] * 2, input)",
    ],
)
def test_an_action_is_what_a_fresh_interpreter_would_do(desktop: Desktop, code: str) -> None:
    """`python` takes the warm interpreter, `/usr/bin/python3` does not."""
    warm, fresh = (execute(desktop, python, "-c", PREFIX + code) for python in ("python", "/usr/bin/python3"))
    assert warm == fresh


def test_actions_go_on_when_the_warm_interpreter_was_killed(desktop: Desktop) -> None:
    desktop.shell("echo password | sudo -S pkill -f interpreter.py")
    for _ in range(2):
        assert execute(desktop, "python", "-c", PREFIX + "print(6 * 7)")["output"] == "42\n"


def warm_interpreter(desktop: Desktop) -> psutil.Process:
    execute(desktop, "python", "-c", PREFIX)  # it is there
    of_desktop = map(psutil.Process, processes(f"test-guest-{os.getpid()}-"))
    (interpreter,) = [process for process in of_desktop if any("interpreter.py" in word for word in process.cmdline())]
    return interpreter


def test_an_action_that_a_stalled_interpreter_has_not_taken_is_run_once(desktop: Desktop) -> None:
    """By another one; a second action that waits beside it is run, too, and the interpreter works on once it can."""
    interpreter = warm_interpreter(desktop)
    interpreter.suspend()
    try:
        with ThreadPoolExecutor(2) as pool:
            code = PREFIX + "open('/tmp/stalled', 'a').write('once ')"
            said = list(pool.map(lambda _: execute(desktop, "python", "-c", code), range(2)))
    finally:
        interpreter.resume()

    assert [one["returncode"] for one in said] == [0, 0]
    assert execute(desktop, "python", "-c", PREFIX + "print(6 * 7)")["output"] == "42\n"
    assert desktop.shell("sleep 1; cat /tmp/stalled") == "once once "
    assert warm_interpreter(desktop) == interpreter


@pytest.mark.slow
def test_an_action_whose_beginning_nobody_saw_is_not_run_again(desktop: Desktop) -> None:
    """The interpreter is ended just before it says that its fork runs: strace kills it at the second word it sends."""
    interpreter = warm_interpreter(desktop)
    strace = [
        "strace",
        "-q",
        "-e",
        "trace=sendto",
        "-e",
        "inject=sendto:signal=KILL:when=2",
        "-p",
        str(interpreter.pid),
    ]
    with subprocess.Popen(strace, stderr=subprocess.DEVNULL) as tracing:
        while "TracerPid:\t0\n" in Path(f"/proc/{interpreter.pid}/status").read_text():
            time.sleep(0.02)
        said = execute(desktop, "python", "-c", PREFIX + "open('/tmp/times', 'a').write('once'); time.sleep(1)")
        tracing.wait(20)

    assert "whether the command ran is not known" in str(said), said
    assert desktop.shell("sleep 2; cat /tmp/times") == "once"
    assert execute(desktop, "python", "-c", PREFIX + "print(6 * 7)")["output"] == "42\n"


@pytest.mark.slow
def test_what_dies_again_and_again_is_started_again_and_again(desktop: Desktop) -> None:
    for death in range(8):
        said = desktop.shell(
            "pkill -9 at-spi-bus-laun; sleep 0.1;"
            " for _ in $(seq 200); do pgrep at-spi-bus-laun && exit; sleep 0.1; done; echo stays away"
        )
        assert "stays away" not in said, f"after death {death + 1}"


def test_the_server_comes_back_when_killed(desktop: Desktop) -> None:
    server = "pgrep -f '[p]ython3 -sB -m server'"
    before = desktop.shell(server).split()
    assert before
    desktop.launch("echo password | sudo -S pkill -9 -f '[p]ython3 -sB -m server'")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if set(desktop.shell(server).split()).isdisjoint(before):
                break
        except requests.RequestException:
            time.sleep(0.1)
    assert requests.get(desktop.url("/screenshot"), timeout=30).status_code == 200
    assert execute(desktop, "python", "-c", PREFIX + "print(6 * 7)")["output"] == "42\n"


@pytest.mark.parametrize("service", ["openbox", "xfce4-panel", "xfdesktop"])
def test_the_desktop_mends_itself(desktop: Desktop, service: str) -> None:
    desktop.shell(f"pkill -9 {service}")
    deadline = time.monotonic() + 30
    while not (health := requests.get(desktop.url("/health"), timeout=30).json())["ok"] and time.monotonic() < deadline:
        assert service in health["failed"]
        time.sleep(0.1)
    assert health["ok"], health
    assert service in health["processes"]


def test_a_program_left_in_the_background_does_not_hold_up_its_command(desktop: Desktop) -> None:
    assert desktop.shell("sleep 1000 & echo started") == "started\n"
    desktop.shell("pkill sleep")


def test_what_a_command_started_dies_with_it_at_its_deadline(desktop: Desktop) -> None:
    script = {"script": "sleep 1000 & sleep 1001", "timeout": 1}
    reply = requests.post(desktop.url("/run_bash_script"), json=script, timeout=30).json()
    assert reply["returncode"] == -1
    assert desktop.shell("pgrep -c sleep") == "0\n"


def test_concurrent_screenshots_are_whole_pictures(desktop: Desktop) -> None:
    moving = threading.Event()

    def move() -> None:
        while not moving.is_set():
            execute(
                desktop,
                "python",
                "-c",
                PREFIX + "pyautogui.PAUSE = 0; [pyautogui.moveTo(x, x // 2) for x in range(900)]",
            )

    def take(_: int) -> tuple[int, int]:
        picture = Image.open(io.BytesIO(requests.get(desktop.url("/screenshot"), timeout=30).content))
        picture.load()
        return picture.size

    mover = threading.Thread(target=move)
    mover.start()
    try:
        with ThreadPoolExecutor(8) as several:
            assert set(several.map(take, range(40))) == {SCREEN}
    finally:
        moving.set()
        mover.join()


def test_calls_that_hang_do_not_stop_the_others(desktop: Desktop) -> None:
    with ThreadPoolExecutor(30) as several:
        slow = [several.submit(desktop.shell, "sleep 3; echo done") for _ in range(16)]
        assert requests.get(desktop.url("/health"), timeout=30).json()["ok"]
        assert requests.get(desktop.url("/screenshot"), timeout=30).status_code == 200
        assert {one.result() for one in slow} == {"done\n"}


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/execute", {}, "wants a 'command'"),
        ("/execute", {"command": []}, "wants a 'command'"),
        ("/execute", {"command": ["echo", 1]}, "wants a 'command'"),
        ("/execute", {"command": "echo 'open"}, "cannot be split"),
        ("/execute", [1], "wants a JSON object"),
        ("/run_python", {}, "wants a text 'code'"),
        ("/run_bash_script", {"script": "true", "timeout": "soon"}, "a number of seconds"),
        ("/run_bash_script", {"script": "true", "working_dir": "/nowhere"}, "no folder /nowhere"),
        ("/setup/upload", {}, "wants a form field 'file_path'"),
        ("/setup/close_window", {}, "wants a text 'window_name'"),
        ("/window_size", {}, "wants a form field 'app_class_name'"),
        ("/end_recording", {}, "no recording was started"),
    ],
)
def test_a_wrong_request_is_refused_with_a_sentence(desktop: Desktop, path: str, body: Any, sentence: str) -> None:
    reply = requests.post(desktop.url(path), json=body, timeout=30)
    assert reply.status_code == 400
    assert sentence in reply.json()["message"]
    assert reply.json()["error"] == reply.json()["message"]


def test_a_command_that_is_not_there_is_an_error(desktop: Desktop) -> None:
    reply = requests.post(desktop.url("/execute"), json={"command": ["no-such-program"]}, timeout=30)
    assert reply.status_code == 500
    assert "no-such-program" in reply.json()["message"]


def test_a_file_nothing_opens_is_said_so_at_once(desktop: Desktop) -> None:
    desktop.shell("printf '\\201\\002\\377\\003' > ~/thing.strange")  # drawn bytes may look like any format
    reply = requests.post(desktop.url("/setup/open_file"), json={"path": "~/thing.strange"}, timeout=50)
    assert (reply.status_code, reply.json()["message"]) == (500, "no program opens /home/user/thing.strange")


def test_a_window_that_comes_after_its_opener_has_given_up_counts(desktop: Desktop) -> None:
    """As on a slow machine: a program that D-Bus starts may be too late for who asked."""
    opener = '#!/bin/sh\n(sleep 6; exec gedit "$1") &\nsleep 5\nexit 4\n'
    installed = "/usr/local/bin/xdg-open"
    desktop.shell(
        f"cat >~/opener <<'END'\n{opener}END\necho password | sudo -S install ~/opener {installed}; touch ~/late.txt"
    )
    try:
        reply = requests.post(desktop.url("/setup/open_file"), json={"path": "~/late.txt"}, timeout=100)
        assert reply.status_code == 200, reply.text
    finally:
        desktop.shell(f"pkill gedit; echo password | sudo -S rm {installed}")


def test_relative_paths_start_at_the_users_home(desktop: Desktop) -> None:
    form = {"file_path": "relative.sh"}
    uploaded = requests.post(desktop.url("/setup/upload"), data=form, files={"file_data": b"echo here\n"}, timeout=60)
    assert uploaded.status_code == 200, uploaded.text
    assert desktop.shell("sh ~/relative.sh") == "here\n"
    assert requests.post(desktop.url("/file"), data=form, timeout=60).content == b"echo here\n"


def test_an_upload_cannot_leave_half_a_file(desktop: Desktop) -> None:
    desktop.shell("echo old > ~/kept; echo password | sudo -S chown root ~/Music; mkdir -p ~/a-folder")
    refused = requests.post(
        desktop.url("/setup/upload"), data={"file_path": "~/Music/x"}, files={"file_data": b"new"}, timeout=30
    )
    assert refused.status_code == 500
    assert "cannot write /home/user/Music/x: Permission denied" in refused.json()["message"]
    folder = requests.post(
        desktop.url("/setup/upload"), data={"file_path": "~/a-folder"}, files={"file_data": b"new"}, timeout=30
    )
    assert folder.status_code == 400
    done = requests.post(
        desktop.url("/setup/upload"), data={"file_path": "~/kept"}, files={"file_data": b"new"}, timeout=30
    )
    assert done.status_code == 200
    assert desktop.shell("cat ~/kept; ls -A ~/a-folder") == "new"


def test_what_the_server_does_is_done_by_its_user(desktop: Desktop) -> None:
    """Though it is root's itself, so that it is nobody's to end."""
    secret = "/home/user/secret"
    desktop.shell(f"echo password | sudo -S sh -c 'echo hidden >{secret}; chmod 600 {secret}'")
    for path in (secret, "/etc/shadow"):
        assert requests.post(desktop.url("/file"), data={"file_path": path}, timeout=30).status_code == 500
    listed = requests.post(desktop.url("/list_directory"), json={"path": "/root"}, timeout=30)
    assert listed.json()["directory_tree"]["children"] == []
    for path, status in (("/etc/uploaded", 500), ("/home/user/new/uploaded", 200)):
        sent = {"data": {"file_path": path}, "files": {"file_data": b"new"}}
        assert requests.post(desktop.url("/setup/upload"), **sent, timeout=30).status_code == status
    requests.post(desktop.url("/start_recording"), timeout=30)
    requests.post(desktop.url("/setup/launch"), json={"command": ["sleep", "4321"]}, timeout=30).raise_for_status()

    assert desktop.shell("stat -c '%U %G %a' ~/new ~/new/uploaded /tmp/guest-recording").splitlines() == [
        "user user 755",
        "user user 664",
        "user user 700",
    ]
    ids = "grep -h -E '^(Uid|Gid|Groups|Cap(Prm|Eff)):' /proc/{}/status"
    own = desktop.shell(ids.format("self"))
    assert "Uid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t27 29 44 1000" in own
    assert desktop.shell(ids.format("$(pgrep -f '[s]leep 4321')")) == own
    assert desktop.shell(ids.format("$(pgrep ffmpeg)")) == own
    asked = "print(open('/proc/self/status').read())"
    for command in (["python", "-c", f"import pyautogui; {asked}"], ["python3", "-c", asked]):
        assert own.splitlines() == [
            line for line in execute(desktop, *command)["output"].splitlines() if line in own.splitlines()
        ]
    desktop.shell("pkill -f 'sleep 432[1]'")
    requests.post(desktop.url("/end_recording"), timeout=60)  # which may have no picture yet


def test_a_second_start_does_not_break_a_recording_and_a_killed_one_can_still_be_played(desktop: Desktop) -> None:
    for _ in range(2):
        assert requests.post(desktop.url("/start_recording"), timeout=30).status_code == 200
    execute(desktop, "python", "-c", PREFIX + "[pyautogui.moveTo(100 * x, 300) for x in range(1, 10)]; time.sleep(2)")
    desktop.shell("pkill -9 ffmpeg")
    ended = requests.post(desktop.url("/end_recording"), timeout=60)
    assert ended.status_code == 200
    requests.post(
        desktop.url("/setup/upload"), data={"file_path": "~/r.mp4"}, files={"file_data": ended.content}, timeout=30
    )
    shown = desktop.shell("ffprobe -v error -count_frames -show_entries stream=nb_read_frames -of csv=p=0 ~/r.mp4")
    assert int(shown) > 0


@pytest.fixture
def slow_ffmpeg(desktop: Desktop) -> Iterator[Desktop]:
    """A desktop whose ffmpeg takes 3 s to start when it records, as on a loaded machine."""
    own = "/usr/local/bin/ffmpeg"
    script = '#!/bin/sh\ncase "$*" in *x11grab*) sleep 3;; esac\nexec /usr/bin/ffmpeg "$@"\n'
    desktop.shell(f"cat >~/slow <<'END'\n{script}END\necho password | sudo -S install ~/slow {own}")
    yield desktop
    desktop.shell(f"echo password | sudo -S rm {own}")


def test_a_recording_that_ends_before_its_first_picture_waits_for_it(slow_ffmpeg: Desktop) -> None:
    requests.post(slow_ffmpeg.url("/start_recording"), timeout=30).raise_for_status()
    ended = requests.post(slow_ffmpeg.url("/end_recording"), timeout=60)
    assert ended.status_code == 200, ended.text
    assert ended.content[4:8] == b"ftyp"


def test_a_recorder_that_cannot_record_says_why(desktop: Desktop) -> None:
    own = "/usr/local/bin/ffmpeg"
    script = '#!/bin/sh\necho "no screen to be found" >&2\nexit 1\n'
    desktop.shell(f"cat >~/broken <<'END'\n{script}END\necho password | sudo -S install ~/broken {own}")
    requests.post(desktop.url("/start_recording"), timeout=30).raise_for_status()
    ended = requests.post(desktop.url("/end_recording"), timeout=60)
    desktop.shell(f"echo password | sudo -S rm {own}")
    assert (ended.status_code, ended.json()["message"]) == (
        500,
        "the recording has no pictures: no screen to be found",
    )


def test_the_desktop_can_be_watched_in_a_browser(desktop: Desktop) -> None:
    page = requests.get(f"http://{desktop.address}:{desktop.ports['vnc']}/vnc.html", timeout=30)
    assert page.status_code == 200
    assert "noVNC" in page.text
    import socket

    with socket.create_connection((desktop.address, desktop.ports["vnc"]), 30) as connection:
        connection.settimeout(30)
        connection.sendall(
            b"GET /websockify HTTP/1.1\r\nHost: guest\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        received = b""
        while b"RFB 003." not in received:
            part = connection.recv(4096)
            assert part, received
            received += part
    assert received.startswith(b"HTTP/1.1 101")
