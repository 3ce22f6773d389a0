"""A template that starts: it is not waited for, as it imports while its worker goes on; and it never outlives its owner."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from rollout_tasks.cells import filesystem, template_process
from rollout_tasks.cells.cell import Cell, CellEnded
from rollout_tasks.cells.filesystem import CellFilesystem, why_unusable
from rollout_tasks.cells.template_process import TemplateProcess
from tests.integration.cells.conftest import NOTHING, TESTS, _nowhere
from tests.parted_bubblewrap import put_parted_bubblewrap
from tests.virtual_machines import processes_naming, wait_until

Started = Callable[[str], TemplateProcess]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The template's module, which looks for a file `awaited` beside it."""
    package = tmp_path / "looks_for_a_file"
    package.mkdir()
    return package


@pytest.fixture
def start(package: Path) -> Iterator[Started]:
    """Starts a template that does something as long as the file is not there."""
    started = []

    def start(otherwise: str) -> TemplateProcess:
        (package / "__init__.py").write_text(
            "import time\nfrom pathlib import Path\nfrom tests.integration.cells.inside import serve\n"
            f"while not (Path(__file__).parent / 'awaited').exists():\n    {otherwise}\n"
        )
        started.append(TemplateProcess(package.name, [package, TESTS], wait=False))
        return started[-1]

    yield start
    for template in started:
        template.stop()


def works(template: TemplateProcess) -> bool:
    try:
        cell = Cell(template, ports={}, dial=_nowhere)
    except CellEnded:
        return False
    assert cell.call("run", NOTHING, code="result = 2") == 2
    cell.close()
    return True


def test_the_first_cell_waits_for_the_imports(start: Started, package: Path) -> None:
    template = start("time.sleep(0.02)")
    threading.Timer(1, (package / "awaited").touch).start()

    assert works(template)
    assert (package / "awaited").exists()
    assert works(template)


def test_imports_that_take_too_long_are_said(start: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    template = start("time.sleep(0.02)")
    monkeypatch.setattr(template_process, "START_SECONDS", 0.5)

    with pytest.raises(CellEnded, match=r"^a cell cannot be made: the template of cells was not ready within 0\.5 s$"):
        Cell(template, ports={}, dial=_nowhere)


def test_one_whose_imports_hang_is_ended_and_started_again(
    start: Started, package: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(template_process, "START_SECONDS", 3)
    template = start("time.sleep(0.02)")
    first = psutil.Process(template.pid)

    wait_until(lambda: not first.is_running(), seconds=30)
    wait_until(lambda: "the template of cells was not ready within 3 s" in caplog.text)
    monkeypatch.setattr(template_process, "START_SECONDS", 60)
    (package / "awaited").touch()
    wait_until(lambda: works(template), seconds=60)


def test_one_that_dies_at_its_imports_is_said_and_started_again(start: Started, package: Path) -> None:
    template = start("raise SystemExit(3)")

    with pytest.raises(CellEnded, match=r"^a cell cannot be made: the template of cells does not start; what"):
        Cell(template, ports={}, dial=_nowhere)
    (package / "awaited").touch()
    wait_until(lambda: works(template), seconds=60)


def test_where_no_thread_can_be_started_no_process_stays(
    start: Started, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        start("time.sleep(0.02)")
    wait_until(lambda: processes_naming(package.name) == [])


@pytest.mark.parametrize("moment", range(20))
def test_one_stopped_at_any_moment_of_its_start_is_gone(start: Started, package: Path, moment: int) -> None:
    template = start("time.sleep(0.02)")
    time.sleep(moment / 2000)
    template.stop()

    wait_until(lambda: processes_naming(str(package)) == [], seconds=5)


@pytest.fixture
def parted_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_parted_bubblewrap(tmp_path / "programs", monkeypatch)


@pytest.mark.usefixtures("parted_bubblewrap")
def test_both_processes_of_bubblewrap_are_ended(start: Started, package: Path) -> None:
    (package / "awaited").touch()
    template = start("pass")
    assert works(template)
    template.stop()

    wait_until(lambda: processes_naming(str(package)) == [], seconds=5)


OWNER = """
import sys
import threading
import time
from pathlib import Path

from rollout_tasks.cells.cell import Cell, Handlers
from rollout_tasks.cells.template_process import TemplateProcess

template = TemplateProcess(sys.argv[1], map(Path, sys.argv[2:-1]), wait=False)
if sys.argv[-1] != "starting":
    template.wait_until_ready()
if sys.argv[-1] == "busy":
    cell = Cell(template, ports={}, dial=lambda _: None)
    busy = lambda: cell.call("run", Handlers({}, {"began": lambda _: print(flush=True)}), code=BUSY)
    threading.Thread(target=busy).start()
else:
    print(flush=True)
time.sleep(100)
""".replace("BUSY", repr("service.tell('began', b'.')\nwhile True: pass"))


@pytest.mark.usefixtures("parted_bubblewrap")
@pytest.mark.parametrize("state", ["starting", "ready", "busy"])
def test_one_whose_owner_is_killed_ends_by_itself(package: Path, state: str) -> None:
    (package / "__init__.py").write_text("from tests.integration.cells.inside import serve\n")
    command = [sys.executable, "-P", "-c", OWNER, package.name, str(package), str(TESTS), state]
    variables = {**os.environ, "TMPDIR": str(package.parent)}  # it cannot remove its folder
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=TESTS.parent, env=variables) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"\n"
        wait_until(lambda: processes_naming(str(package)))  # a child is named as its owner until it is bubblewrap
        owner.kill()

    wait_until(lambda: processes_naming(str(package)) == [], seconds=20)


def test_a_self_test_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_parted_bubblewrap(tmp_path / "programs", monkeypatch, hangs=True)
    monkeypatch.setattr(filesystem, "_CHECK_SECONDS", 0.3)
    monkeypatch.setattr(filesystem, "_TEMPORARY", mark := f"/{tmp_path.name}")

    assert why_unusable(CellFilesystem(as_root=True)) == "it does not answer within 0.3 s"
    wait_until(lambda: processes_naming(mark) == [], seconds=5)


RESTARTED = """
import os, signal, sys, tempfile
from pathlib import Path
import psutil
from celery.apps.worker import install_worker_restart_handler
from rollout_tasks.cells.template_process import shared_template
from rollout_tasks.temporary_files import use_own_folder
from rollout_tasks.worker.bootsteps import HangUp

if "RESTARTED" in os.environ:
    print(tempfile.gettempdir(), list(Path(tempfile.gettempdir()).iterdir()), psutil.Process().children())
    sys.exit()
os.environ["RESTARTED"] = "yes"
use_own_folder("test-")
shared_template("rollout_tasks.cli.vm_host").wait_until_ready()  # any module that has a `serve`
install_worker_restart_handler(None)
HangUp(None).start(None)
signal.raise_signal(signal.SIGHUP)
"""


def test_one_whose_owner_is_restarted_in_place_is_ended_first_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "restarted.py").write_text(RESTARTED)
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent), "TMPDIR": str(tmp_path / "tmp")}

    done = subprocess.run(
        [sys.executable, str(tmp_path / "restarted.py")], env=environment, capture_output=True, text=True, timeout=120
    )

    assert done.stdout.splitlines()[-1:] == [f"{tmp_path / 'tmp'} [] []"], done.stderr
