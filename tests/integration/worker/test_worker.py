"""What is added to a Celery worker, seen from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import redis
from celery import Celery
from celery.events import EventReceiver
from kombu.asynchronous.timer import Timer

from rollout_tasks import restarted_process
from rollout_tasks.settings import settings
from rollout_tasks.tasks import FINALIZE_QUEUE
from rollout_tasks.worker import timers, vm_host
from tests.conftest import REPOSITORY

TASKS = 40


@contextmanager
def running(redis_url: str, folder: Path, option: str = "--queues=finalize") -> Iterator[psutil.Process]:
    """A worker with one child, ready, with its log and its temporary files in a folder."""
    log = folder / "worker.log"
    celery = str(Path(sysconfig.get_path("scripts"), "celery"))  # Celery cannot restart `python -m celery`
    command = [sys.executable, celery, "-A", "rollout_tasks", "worker", "--concurrency=1", "--loglevel=INFO"]
    (folder / "tmp").mkdir(exist_ok=True)
    with log.open("wb") as file:
        process = psutil.Popen(
            [*command, "--without-gossip", "--without-mingle", option],
            env={**os.environ, "ROLLOUT_REDIS_URL": redis_url, "TMPDIR": str(folder / "tmp")},
            cwd=REPOSITORY,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 150
        while " ready." not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield process
    finally:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
            try:
                process.wait(30)
            except psutil.TimeoutExpired:
                children = process.children()
                for one in (process, *children):  # Celery logs where its threads are; in a child this ends a task
                    one.send_signal(signal.SIGUSR1)
                time.sleep(1)
                for one in (process, *children):
                    one.kill()
                pytest.fail(f"the worker does not stop; children: {children}\n{log.read_text()[-20_000:]}")


@pytest.fixture
def worker(redis_url: str, tmp_path: Path) -> Iterator[psutil.Process]:
    """One for a test."""
    with running(redis_url, tmp_path) as process:
        yield process


class Receiver(EventReceiver):
    """Has tasks run as soon as it certainly hears events, and listens until they all have, or for a minute."""

    def __init__(self, app: Celery) -> None:
        self.received: list[str] = []
        self.messages = 0
        self.sent = False
        self.deadline = time.monotonic() + 150
        super().__init__(app.connection(), handlers={"*": self.keep}, app=app)

    def keep(self, event: dict[str, Any]) -> None:
        if not self.sent:  # a worker's heartbeat: from here on nothing is missed
            self.sent = True
            self.messages = 0
            for _ in range(TASKS):
                self.app.send_task("finalize_run", ("no-such-run",), queue="finalize")
        self.received.append(event["type"])
        done = self.received.count("task-succeeded") >= TASKS
        self.should_stop = done or time.monotonic() > self.deadline

    def _receive(self, body: Any, message: Any, **options: Any) -> None:
        self.messages += 1
        super()._receive(body, message, **options)


def folders(tmp_path: Path) -> tuple[set[str], set[str]]:
    """The temporary folders of workers, and of their children."""
    workers = list((tmp_path / "tmp").iterdir())
    return {path.name for path in workers}, {path.name for worker in workers for path in worker.glob("child-*")}


def wait_for_a_child(tmp_path: Path, *, other_than: Collection[str] = ()) -> None:
    """Until a worker has one child folder, none of those."""
    deadline = time.monotonic() + 150
    while not (names := folders(tmp_path)[1]) or names & set(other_than):
        assert time.monotonic() < deadline, names
        time.sleep(0.05)


@pytest.mark.slow
def test_temporary_files_of_killed_workers_and_children_go_when_others_start(redis_url: str, tmp_path: Path) -> None:
    with running(redis_url, tmp_path) as worker:
        wait_for_a_child(tmp_path)
        first_worker, first_child = folders(tmp_path)
        for child in worker.children():
            child.kill()
        wait_for_a_child(tmp_path, other_than=first_child)
        assert folders(tmp_path)[0] == first_worker
        children = worker.children()
        worker.kill()
        worker.wait(30)
        assert psutil.wait_procs(children, timeout=30)[1] == [], "its children stay"
    assert folders(tmp_path)[0] == first_worker

    with running(redis_url, tmp_path):
        assert len(folders(tmp_path)[0]) == 1
        assert not folders(tmp_path)[0] & first_worker

    assert folders(tmp_path) == (set(), set())


@pytest.mark.slow
def test_a_worker_that_a_hang_up_restarts_has_a_new_folder_in_place_of_the_old_one(
    worker: psutil.Process, tmp_path: Path
) -> None:
    wait_for_a_child(tmp_path)
    first_worker, first_child = folders(tmp_path)

    worker.send_signal(signal.SIGHUP)
    wait_for_line(tmp_path, " ready.", 2)
    wait_for_a_child(tmp_path, other_than=first_child)

    assert len(folders(tmp_path)[0]) == 1
    assert not folders(tmp_path)[0] & first_worker


def test_a_child_that_outlived_its_worker_while_it_was_forked_ends() -> None:
    script = (
        "import os; from rollout_tasks.worker.bootsteps import begin_child; begin_child(os.getpid()); print('goes on')"
    )

    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout) == (1, "")


def wait_for_line(tmp_path: Path, words: str, times: int = 1) -> None:
    """Until the worker's log has some words that many times."""
    deadline = time.monotonic() + 150
    while (log := (tmp_path / "worker.log").read_text()).count(words) < times:
        assert time.monotonic() < deadline, log
        time.sleep(0.05)


def test_a_task_that_begins_when_its_worker_already_stops_does_not_hold_it_up(
    worker: psutil.Process, redis_url: str, tmp_path: Path
) -> None:
    app = Celery(broker=redis_url)
    app.send_task("finalize_run", ("no-such-run",), queue="finalize")
    wait_for_line(tmp_path, "finalize_run[", 2)  # received and carried out: the child is there
    (child,) = worker.children()

    child.suspend()
    app.send_task("finalize_run", ("no-such-run",), queue="finalize")
    wait_for_line(tmp_path, "finalize_run[", 3)
    time.sleep(0.5)  # it is in the child's pipe
    worker.terminate()
    wait_for_line(tmp_path, "Warm shutdown")
    time.sleep(1)  # the worker has forgotten a task of which the child has not said that it began
    child.resume()

    worker.wait(15)
    wait_for_line(tmp_path, "finalize_run[", 4)


def test_every_event_of_a_task_arrives_in_few_messages(worker: psutil.Process, redis_url: str) -> None:
    receiver = Receiver(Celery(broker=redis_url))

    began = time.monotonic()
    receiver.capture(limit=None, timeout=60, wakeup=False)

    for kind in ("task-received", "task-started", "task-succeeded"):
        assert receiver.received.count(kind) >= TASKS  # the worker itself looks for lost work now and then
    assert receiver.messages < TASKS + 2 * (time.monotonic() - began), "beside one message every half second"


@pytest.fixture
def consumer(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What a timed step needs of its consumer, with the timer of a real one."""
    monkeypatch.setenv("ROLLOUT_REDIS_URL", redis_url)
    monkeypatch.setenv("ROLLOUT_RECONCILE_EVERY", "20")
    settings.cache_clear()
    return SimpleNamespace(timer=Timer(), client=redis.Redis.from_url(redis_url, decode_responses=True))


def next_in(consumer: SimpleNamespace) -> float:
    """Seconds until the timer's only entry."""
    (entry,) = consumer.timer.queue
    return float(entry.eta - time.monotonic())


def test_what_a_worker_that_was_killed_had_promised_to_look_for_is_looked_for_within_one_interval(
    consumer: SimpleNamespace,
) -> None:
    consumer.client.set("reconcile:tick", "killed", px=10_000)
    step = timers.LostWork(consumer)

    step.start(consumer)

    assert 0 < next_in(consumer) <= 10
    step.stop(consumer)


def test_lost_work_is_not_asked_for_again_while_the_last_message_waits(redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    script = (
        "from types import SimpleNamespace; from kombu.asynchronous.timer import Timer; import rollout_tasks.app;"
        "from rollout_tasks.worker.timers import LostWork; LostWork(None).start(SimpleNamespace(timer=Timer()))"
    )
    for _ in range(2):
        client.delete("reconcile:tick")
        environment = {**os.environ, "ROLLOUT_REDIS_URL": redis_url}
        subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, env=environment, check=True)

    (message,) = client.lrange(FINALIZE_QUEUE, 0, -1)
    assert '"expires": null' in message, "whether it has expired would be judged by two hosts' clocks"


@pytest.mark.parametrize("error", [KeyError("what nobody expects"), OSError("neither"), redis.ConnectionError("away")])
def test_a_timed_step_goes_on_after_any_error(consumer: SimpleNamespace, error: Exception) -> None:
    class Failing(timers._Regularly):
        def interval(self) -> float:
            return 5.0

        def act(self, client: redis.Redis, consumer: Any) -> float:  # noqa: ARG002
            raise error

    step = Failing(consumer)

    step.start(consumer)

    assert 0 < next_in(consumer) <= 5
    step.stop(consumer)


@pytest.mark.usefixtures("misleading_folder")
def test_files_in_the_current_folder_replace_no_module_of_the_vm_host() -> None:
    step = vm_host.HostedVMs(SimpleNamespace(hostname="celery@here"), num_vms=1)

    done = subprocess.run([*step.command, "--help"], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr


def test_a_vm_host_that_could_not_be_started_again_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that had no memory for it has none for the next one at once."""
    tries: list[bool] = []

    def launch(_step: vm_host.HostedVMs) -> subprocess.Popen[bytes]:
        tries.append(len(tries) == 1)
        if tries[-1]:
            raise BlockingIOError("no process left")
        return subprocess.Popen(["/bin/true"] if len(tries) < 3 else ["sleep", "600"])

    monkeypatch.setattr(restarted_process, "RESTART_SECONDS", (0.01, 0.02))
    monkeypatch.setattr(vm_host.HostedVMs, "_launch", launch)
    step = vm_host.HostedVMs(SimpleNamespace(hostname="celery@here"), num_vms=1)
    step.start(None)
    deadline = time.monotonic() + 20
    while len(tries) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)

    step.terminate(None)

    assert tries == [False, True, False]
    assert step.host is not None
    assert step.host.process.poll() is not None


def refused(*options: str, without: str = "Traceback", **variables: str) -> str:
    """The sentence with which a worker ends at its start."""
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "rollout_tasks", "worker", *options],
        env={**os.environ, **variables},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    assert without not in done.stderr
    beginning, error, said = done.stderr.splitlines()[-1].partition("error: ")
    assert (beginning, error) == ("", "error: ")
    return said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--provider=locl"], "no VM provider is called 'locl'; installed: "),
        pytest.param(
            ["--provider=simulated", "--provider-option=boot_second=1"],
            "VM provider 'simulated' does not accept its options",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["--provider-option=x"],
            "--provider-option: must look like key=value, got 'x'",
            marks=pytest.mark.slow,
        ),
        pytest.param(["--vm-pool=a b"], "a b", marks=pytest.mark.slow),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_worker_whose_vms_can_never_be_is_refused(options: list[str], said: str) -> None:
    """Instead of starting again and again a VM host that ends at once."""
    assert said in refused("--num-vms=1", *options)


def test_a_worker_that_redis_refuses_at_its_start_says_so_and_ends(redis_url: str) -> None:
    here = redis_url.split("@")[1]
    url = f"redis://:hunter2@{here}"
    assert refused("--concurrency=1", "--queues=finalize", ROLLOUT_REDIS_URL=url, without="hunter2").startswith(
        f"Redis at {here} refuses the login: check the user and the password in its URL, REDIS_URL by default ("
    )


def test_a_mistyped_queue_is_named_when_a_worker_starts(redis_url: str, tmp_path: Path) -> None:
    with running(redis_url, tmp_path, "--queues=rollout.lihgt,rollout.light,finalize,mine"):
        log = (tmp_path / "worker.log").read_text()

    warnings = [line.partition("WARNING ")[2] for line in log.splitlines() if "--queues" in line]
    assert warnings == ["--queues: no environment sends its rollouts to rollout.lihgt; did you mean rollout.light?"]


def test_excluded_queues_are_not_served_and_a_mistyped_one_is_named(redis_url: str, tmp_path: Path) -> None:
    with running(redis_url, tmp_path, "--exclude-queues=rollout.simulated,rollout.lihgt"):
        log = (tmp_path / "worker.log").read_text()

    assert "exchange=rollout.light(" in log
    assert "exchange=rollout.simulated(" not in log
    warnings = [line.partition("WARNING ")[2] for line in log.splitlines() if "-queues" in line]
    assert warnings == [
        "--exclude-queues: no environment sends its rollouts to rollout.lihgt; did you mean rollout.light?"
    ]


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_another_pool_than_prefork_is_refused(pool: str) -> None:
    said = refused(f"--pool={pool}", "--queues=finalize")
    assert said.startswith("--pool: rollouts need the prefork pool, ")
