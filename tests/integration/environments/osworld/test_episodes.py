"""Episodes on a real desktop: setup, what is seen, what counts as solved, the recording, and nothing left behind."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import cv2
import pytest
from PIL import Image

from rollout_tasks.environments.base import Observation
from rollout_tasks.environments.osworld.screenshot import size_of
from rollout_tasks.settings import settings
from tests.desktops import needs_local_desktops
from tests.integration.environments.osworld.conftest import SCREEN, Desk, Play
from tests.virtual_machines import wait_until

pytestmark = needs_local_desktops

Begin = Callable[..., Play]
EDITOR = [{"type": "launch", "parameters": {"command": ["gedit"]}}]


def told(command: str, expected: str) -> dict[str, Any]:
    """An evaluator that compares what a command prints."""
    return {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": command, "shell": True},
        "expected": {"type": "rule", "rules": {"expected": expected}},
    }


def file_is(path: str, content: str) -> dict[str, Any]:
    """An evaluator that looks for text in a file of the guest."""
    return {
        "func": "check_include_exclude",
        "result": {"type": "vm_command_line", "command": ["cat", path]},
        "expected": {"type": "rule", "rules": {"include": [content], "exclude": []}},
    }


def seen_once(playing: Play, holds: Callable[[str], bool]) -> Observation:
    """What is seen as soon as the text is as it should be, which a busy machine may take a while for."""
    seen: list[Observation] = []

    def looked() -> bool:
        observation = playing.act("desktop_control", action="wait", pause=0.5).observation
        assert observation is not None
        seen.append(observation)
        return holds(observation.text)

    wait_until(looked)
    return seen[-1]


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    "kind",
    [
        "screenshot_a11y_tree",
        "som",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("screenshot", "a11y_tree")),
    ],
)
def test_what_is_seen(kind: str, play: Begin) -> None:
    playing = play(EDITOR, observation_type=kind, action_space="computer_13")

    seen = playing.first
    assert seen is not None
    assert [size_of(picture) for picture in seen.images] == ([] if kind == "a11y_tree" else [SCREEN])
    if kind == "screenshot":
        assert seen.text == ""
    elif kind == "som":
        save = next(line for line in seen.text.splitlines() if line.endswith("[push-button] Save"))
        mark = int(save.split(":")[0])
        playing.act("desktop_mouse_click", mark=mark)
        later = seen_once(playing, lambda text: "Save As" in text or "Cancel" in text)
        with Image.open(io.BytesIO(seen.images[0])) as before, Image.open(io.BytesIO(later.images[0])) as after:
            assert before.tobytes() != after.tobytes()
    else:
        line = next(line for line in seen.text.splitlines() if "[push-button] Save" in line)
        assert line.startswith("    ")
        assert ("@ (" in line) == (kind == "a11y_tree")


def test_a_pause_of_nothing_works_and_longer_ones_are_waited(play: Begin) -> None:
    playing = play(action_space="computer_13", sleep_after_execution=0)

    assert playing.act("desktop_mouse_move", x=1, y=1).observation is not None
    assert playing.act("desktop_control", action="wait", pause=0).observation is not None


@pytest.mark.usefixtures("clean")
def test_a_task_is_set_up_solved_by_acting_and_scored(play: Begin, desk: Desk) -> None:
    setup = [
        {"type": "execute", "parameters": {"command": "echo first > /home/user/note.txt", "shell": True}},
        {"type": "open", "parameters": {"path": "/home/user/note.txt"}},
    ]
    save = [
        {
            "type": "execute",
            "parameters": {"command": ["python", "-c", "import pyautogui; pyautogui.hotkey('ctrl', 's')"]},
        },
        {"type": "sleep", "parameters": {"seconds": 0.5}},
    ]
    playing = play(setup, {**file_is("/home/user/note.txt", "second"), "postconfig": save}, action_space="computer_13")

    playing.act("desktop_hotkey", keys=["ctrl", "end"])
    playing.act("desktop_type", text="\nsecond")
    ended = playing.act("desktop_control", action="done")

    assert ended.ends_episode == "done"
    assert playing.environment.evaluate() == 1.0
    assert desk.run("cat /home/user/note.txt") == "first\nsecond\n"


def test_doing_nothing_scores_nothing(play: Begin) -> None:
    playing = play(evaluator=told("cat /home/user/a.txt", "x"))
    playing.act("desktop_control", action="done")
    assert playing.environment.evaluate() == 0.0


@pytest.mark.parametrize(("word", "score"), [("fail", 1.0), ("done", 0.0)])
def test_an_infeasible_task_is_solved_by_saying_so(word: str, score: float, play: Begin) -> None:
    playing = play(evaluator={"func": "infeasible"})
    playing.act("desktop_control", action=word)
    assert playing.environment.evaluate() == score


def test_giving_up_a_feasible_task_scores_nothing(play: Begin) -> None:
    playing = play(evaluator=told("echo yes", "yes\n"))
    playing.act("desktop_control", action="fail")
    assert playing.environment.evaluate() == 0.0


@pytest.mark.parametrize(("conjunction", "score"), [("and", 0.0), ("or", 1.0)])
def test_two_evaluators(conjunction: str, score: float, play: Begin) -> None:
    one, other = told("echo yes", "yes\n"), told("echo yes", "no\n")
    both = {key: [one[key], other[key]] for key in ("func", "result", "expected")}
    playing = play(evaluator={**both, "conj": conjunction})
    assert playing.environment.evaluate() == score


@pytest.mark.parametrize("content", [None, "no table at all"])
def test_a_missing_or_broken_result_scores_nothing(content: str | None, play: Begin, desk: Desk) -> None:
    result = {"type": "vm_file", "path": "/home/user/out.json", "dest": "out.json"}
    expected = {"type": "rule", "rules": {"expect": [{"key": ["a"], "method": "eq", "ref": 1}]}}
    playing = play(evaluator={"func": "check_json", "result": result, "expected": expected})
    if content is not None:
        desk.run(f"echo '{{{content}' > /home/user/out.json")

    assert playing.environment.evaluate() == 0.0


def test_a_broken_evaluator_is_an_error_and_no_score(play: Begin) -> None:
    evaluator = {**told("echo 1", "1"), "func": "literal_match", "options": {"type": "nonsense"}}
    playing = play(evaluator=evaluator)
    with pytest.raises(Exception, match="not supported"):
        playing.environment.evaluate()


def test_agents_programs_are_tested_in_the_guest(play: Begin, desk: Desk, files: type[Files]) -> None:
    evaluator = {
        "func": "check_python_file_by_test_suite",
        "result": {"type": "vm_file", "path": ["/home/user/sums.py"], "dest": ["sums.py"], "multi": True},
        "expected": {"type": "cloud_file", "path": files.url("test.py"), "dest": "test_suite.py"},
    }
    files.content["test.py"] = b"import sums\ndef test():\n    return sums.add(1, 2) == 3\n"
    playing = play(evaluator=evaluator)
    spy = Path(tempfile.gettempdir()) / "was_here"
    desk.run(f'printf \'open("{spy}", "w").close()\\ndef add(a, b):\\n    return a + b\\n\' > /home/user/sums.py')

    assert playing.environment.evaluate() == 1.0
    assert not spy.exists()
    assert desk.run(f"ls {spy}").strip() == str(spy)
    desk.run("echo 'def add(a, b): return 0' > /home/user/sums.py")
    assert playing.environment.evaluate() == 0.0


class Files(BaseHTTPRequestHandler):
    """A server for a task's files."""

    content: ClassVar[dict[str, bytes]] = {}
    served: ClassVar[list[str]] = []
    port: ClassVar[int] = 0

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        self.served.append(name)
        body = self.content.get(name)
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_arguments: object) -> None:
        pass

    @classmethod
    def url(cls, name: str) -> str:
        return f"http://127.0.0.1:{cls.port}/{name}"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Files]]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ROLLOUT_DOWNLOAD_HOSTS", "127.0.0.1")
    settings.cache_clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    Files.port = server.server_port
    Files.content.clear()
    Files.served.clear()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield Files
    server.shutdown()
    server.server_close()
    thread.join()


def test_files_are_downloaded_once_for_setup_and_evaluation(play: Begin, desk: Desk, files: type[Files]) -> None:
    files.content.update({"in.txt": b"for the guest\n", "gold.txt": b"for the guest\n"})
    setup = [{"type": "download", "parameters": {"files": [{"url": files.url("in.txt"), "path": "/home/user/in.txt"}]}}]
    evaluator = {
        "func": "compare_text_file",
        "result": {"type": "vm_file", "path": "/home/user/in.txt", "dest": "in.txt"},
        "expected": {"type": "cloud_file", "path": files.url("gold.txt"), "dest": "gold.txt"},
    }
    for _ in range(2):
        playing = play(setup, evaluator)
        assert desk.run("cat /home/user/in.txt") == "for the guest\n"
        assert playing.environment.evaluate() == 1.0
        playing.environment.close()

    assert sorted(files.served) == ["gold.txt", "in.txt"]


def test_a_file_that_cannot_be_had_fails_the_setup(play: Begin, files: type[Files]) -> None:
    setup = [{"type": "download", "parameters": {"files": [{"url": files.url("gone"), "path": "/home/user/x"}]}}]
    with pytest.raises(Exception, match="/gone: HTTP 404 Not Found"):
        play(setup)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"type": "launch", "parameters": {"command": ["no-such-program"]}}, "no-such-program"),
        ({"type": "open", "parameters": {"path": "/home/user/none.txt"}}, "none.txt"),
        ({"type": "change_wallpaper", "parameters": {"path": "/home/user/none.png"}}, "none.png"),
        ({"type": "execute", "parameters": {"command": ["no-such-program"]}}, "no-such-program"),
    ],
)
def test_a_setup_step_that_did_not_happen_fails_the_setup(step: dict[str, Any], said: str, play: Begin) -> None:
    with pytest.raises(RuntimeError, match=said):
        play([step])


def test_a_screen_of_another_size_is_refused(play: Begin) -> None:
    with pytest.raises(
        RuntimeError, match="the VM's screen has 1280x720 pixels, the run's 1920x1080: say --screen-width"
    ):
        play(screen_width=1920, screen_height=1080)


@pytest.mark.usefixtures("clean")
def test_the_terminal_is_shown_on_request(play: Begin) -> None:
    terminal = [{"type": "launch", "parameters": {"command": ["gnome-terminal"]}}]
    playing = play(terminal, require_terminal=True, action_space="computer_13")
    playing.act("desktop_type", text="echo $((6 * 7))\n")

    seen = seen_once(playing, lambda text: "\n42\n" in text)

    assert seen.text.startswith("Terminal:\n")


def test_the_recording_plays_and_the_log_says_what_was_done(play: Begin) -> None:
    playing = play(enable_recording=True, action_space="computer_13")
    for place in (100, 300, 500):
        playing.act("desktop_mouse_move", x=place, y=place)
    playing.act("desktop_control", action="wait", pause=3)
    playing.environment.evaluate()
    playing.environment.close()

    recording = playing.folder / "recording.mp4"
    film = cv2.VideoCapture(str(recording))
    frames = []
    while (frame := film.read())[0]:
        frames.append(frame[1])
    assert {(frame.shape[1], frame.shape[0]) for frame in frames} == {SCREEN}
    assert len(frames) / film.get(cv2.CAP_PROP_FPS) > 0.5
    assert "MOVE_TO" in (playing.folder / "desktop-env.log").read_text()


def test_nothing_comes_to_the_worker(play: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play().environment.close()  # there is a template from here on
    (temporary := tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    playing = play([{"type": "execute", "parameters": {"command": "echo x", "shell": True, "stdout": "said.txt"}}])
    assert list(temporary.iterdir()) == []
    playing.environment.close()
    playing.environment.close()
    assert list(temporary.iterdir()) == []


@pytest.mark.usefixtures("trusted")
def test_a_trusted_task_is_played_in_the_workers_own_process(play: Begin) -> None:
    playing = play(
        EDITOR, told("echo x", "x\n"), observation_type="som", action_space="computer_13", enable_recording=True
    )

    assert playing.environment.task_code == "worker"
    assert playing.first is not None
    assert "[push-button] Save" in playing.first.text
    playing.act("desktop_control", action="wait", pause=3)
    assert playing.environment.evaluate() == 1.0
    playing.environment.close()
    assert (playing.folder / "recording.mp4").stat().st_size > 0
    assert "/setup/launch" in (playing.folder / "desktop-env.log").read_text()


@pytest.mark.usefixtures("trusted")
def test_nothing_stays_on_the_worker(play: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (temporary := tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    playing = play([{"type": "execute", "parameters": {"command": "echo x", "shell": True, "stdout": "said.txt"}}])
    assert [file.read_text() for file in temporary.glob("osworld-*/task/said.txt")] == ["x\n"]
    playing.environment.close()
    playing.environment.close()
    assert list(temporary.iterdir()) == []


@pytest.mark.usefixtures("trusted")
def test_what_a_killed_worker_left_goes_with_the_next_attempt(
    play: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (temporary := tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    script = (
        "import os; from rollout_tasks.temporary_files import TemporaryFolder; TemporaryFolder('osworld-'); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "TMPDIR": str(temporary)}, check=False)
    (left,) = temporary.iterdir()

    play().environment.close()

    assert not left.exists()
