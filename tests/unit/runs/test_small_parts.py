"""Parts of runs that others are made of: events, a finaliser's claim, announcements of workers, progress from a folder."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass
from rollout_tasks.runs import finalize as finalize_module
from rollout_tasks.runs import presence
from rollout_tasks.runs.durable_files import write_once
from rollout_tasks.runs.events import EventsFile
from rollout_tasks.runs.finalize import finalize
from rollout_tasks.runs.finalizer_claim import FinalizerClaim
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.progress import progress_in_folder
from rollout_tasks.runs.states import Progress
from rollout_tasks.runs.submission import Source, Submission
from rollout_tasks.runs.submission_store import reserve
from rollout_tasks.runs.submit import submitter_beats
from rollout_tasks.runs.verdict import Verdict
from tests.unit.runs.test_events import ROLLOUT, attempt, events_of, told, write_dead, write_ended
from tests.unit.runs.test_finalize import RUN, Finished, finished  # noqa: F401 (a fixture)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


@pytest.fixture
def client(redis_url: str) -> redis.Redis:
    return redis.Redis.from_url(redis_url, decode_responses=True)


# -- events


def test_events_are_collected_on_the_runs_own_disk_and_leave_nothing_open(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")

    with EventsFile(folder) as events:
        events.note([attempt(1, 5.0, 9.5)])
        events.publish()

    assert events._unsorted.closed
    assert ROLLOUT in folder.events.read_text("utf-8"), "it is written as it is called"


def test_a_rollout_without_a_verdict_hides_no_other(folder: RunFolder) -> None:
    write_ended(folder, attempt(1, 5.0, 9.5))
    verdicts = [None, attempt(1, 5.0, 9.5)]

    with EventsFile(folder) as events:
        assert events.note(verdicts) is verdicts
        events.publish()

    assert len(folder.events.read_text().splitlines()) == 2


def test_an_earlier_attempts_vm_is_told_though_the_last_attempt_needed_none(folder: RunFolder) -> None:
    write_dead(folder, 1, began=3.0, last_seen=4.5, vm_id="vm-2")
    second = Verdict(ROLLOUT, 2, "completed")
    write_ended(folder, second)

    assert told(events_of(folder, second)) == [(3.0, "vm-2", "allocate"), (4.5, "vm-2", "worker_exit")]


def test_of_a_rollout_that_needed_no_vm_and_no_second_attempt_nothing_is_read(folder: RunFolder) -> None:
    folder.path.joinpath("item-=C3=BC").write_text("a file where the rollout's folder belongs")

    assert events_of(folder, Verdict(ROLLOUT, 1, "completed")) == []
    write_dead(RunFolder(folder.path / "other"), 1, began=3.0, last_seen=4.5, vm_id="vm-2")
    assert events_of(RunFolder(folder.path / "other"), Verdict(ROLLOUT, 1, "completed")) == []


# -- finalising


def test_a_finalisers_heartbeat_keeps_its_distance_and_ends_with_its_work(finished: Finished) -> None:  # noqa: F811
    assert finished.store.begin_finalize(RUN, "mine", silent_seconds=60) == "go"

    with FinalizerClaim(finished.store, RUN, "mine", interval=0.3) as claim:
        seen = set()
        until = time.monotonic() + 0.8
        while time.monotonic() < until:
            seen.add(claim._last_beat)
            time.sleep(0.01)
    claim._thread.join(20)

    assert not claim._thread.is_alive()
    assert len(seen) <= 3
    assert claim._thread.daemon, "it would keep its process from ending"


def test_a_finaliser_that_loses_redis_writes_no_end(
    finished: Finished,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost(*_: object, **__: object) -> None:
        raise redis.ConnectionError("gone")

    monkeypatch.setattr(finalize_module, "write_reports", lost)

    with pytest.raises(redis.ConnectionError, match="gone"):
        finalize(RUN)

    assert finished.store.state(RUN) == "finalizing"
    assert not [path for path in finished.folder.path.iterdir() if path.name == ".ended"]


def test_a_folder_is_made_again_with_those_above_it(finished: Finished) -> None:  # noqa: F811
    finished.folder = RunFolder(finished.folder.path / "deeper" / "still")

    assert "it has no run.json" in finished.write()

    assert finished.folder.events.exists()


# -- files


def open_folders_of_descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(OSError):  # the one that was listed with
            found.append(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115
    return [path for path in found if path == f"/proc/{os.getpid()}/fd"]


def test_what_is_written_once_leaves_no_file_open(tmp_path: Path) -> None:
    for number in range(3):
        assert write_once(tmp_path / f"{number}", "text")
        assert not write_once(tmp_path / f"{number}", "other")

    assert open_folders_of_descriptors() == []


# -- workers


def test_a_worker_that_starts_forgets_those_that_are_gone(client: redis.Redis) -> None:
    presence.announce(client, "gone@here", ["q"])
    said = json.loads(client.hget("workers", "gone@here") or "")
    client.hset("workers", "gone@here", json.dumps(said | {"at": said["at"] - 3600}))

    presence.announce_start(client, "new@here", ["q"])

    assert client.hkeys("workers") == ["new@here"]


@pytest.mark.parametrize(("since", "said"), [(-30.0, 0), (60.0, 60)])
def test_how_long_a_worker_has_been_starting_is_never_less_than_nothing(
    client: redis.Redis, since: float, said: int
) -> None:
    presence.announce_start(client, "new@here", ["q"])
    announced = json.loads(client.hget("workers", "new@here") or "")
    client.hset("workers", "new@here", json.dumps(announced | {"at": announced["at"] - since}))

    (words, _, seconds) = presence.unserved(client, ["q"]).rpartition(" for ")
    assert words == "a worker for q has been starting"
    assert 0 <= int(seconds.removesuffix(" s")) - said <= (5 if said else 0)


# -- progress


def test_a_folder_shows_how_far_its_run_is(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.description.create(RunConfig(), [Item(name, "?") for name in "abcde"], data_path="x", data_name="x")
    for verdict in (
        Verdict("a#0", 1, "completed", score=0.5, cost=1.0, earlier_cost=0.25),
        Verdict("b#0", 1, "completed", score=0.0),
        Verdict("c#0", 2, "failed", failure_class=FailureClass.TIMEOUT, cost=2.0),
        Verdict("d#0", 1, "cancelled", failure_class=FailureClass.CANCELLED),
    ):
        folder.settle(verdict, written=False)

    expected = Progress(
        run_id="run",
        state="unknown",
        total=5,
        pending=1,
        committed=4,
        running=0,
        completed=2,
        failed=1,
        cancelled=1,
        failures={"cancelled": 1, "timeout": 1},
        score_sum=0.5,
        cost=3.25,
        created=(folder.path / "run.json").stat().st_mtime,
    )
    assert progress_in_folder(folder) == expected
    assert list(progress_in_folder(folder).failures) == ["cancelled", "timeout"]
    folder.settle(Verdict("e#0", 1, "completed"), written=False)
    assert progress_in_folder(folder).state == "done"


# -- submissions


def test_a_submission_counts_what_it_keeps_sends_and_has_spent(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    spent = Verdict("c#0", 1, "failed", failure_class=FailureClass.VM_LOST, cost=0.5)
    folder.begin_attempt("c#0", 1)
    folder.write_attempt(spent)
    kept = [Verdict("a#0", 1, "completed", cost=2.0, earlier_cost=1.0), Verdict("b#0", 1, "completed")]
    folder.settle(kept[0], written=False)
    todo = ["c#0", "d#0", "e#0"]
    resumed = Submission("run", RunConfig(), folder, [], kept, todo, resumed=True)
    new = Submission("run", RunConfig(), folder, [], (), todo, resumed=False)

    assert (resumed.total, resumed.spent, resumed.count_committed()) == (5, 3.5, 2)
    assert list(resumed.spent_before()) == [("c#0", 0.5)]
    assert list(new.spent_before()) == []
    assert (new.spent, new.embedded, new.source) == (0.0, False, Source())
    assert not Submission("run", RunConfig(), folder, [], kept, (), resumed=True).settled
    folder.settle(kept[1], written=False)
    assert Submission("run", RunConfig(), folder, [], kept, (), resumed=True).settled
    assert not resumed.settled
    folder.settle(Verdict("d#0", 1, "completed"), written=False)
    assert resumed.count_committed() == 3


# -- the run store


def test_a_finalisers_silence_is_told_to_the_fraction_of_a_second(finished: Finished) -> None:  # noqa: F811
    finished.store.begin_finalize(RUN, "mine", silent_seconds=60)
    for _ in range(5):
        began = time.monotonic()
        seconds, microseconds = finished.store.client.time()  # type: ignore[misc]
        beat = int(seconds) + int(microseconds) / 1e6 - 100
        finished.store.client.hset(f"{{run:{RUN}}}", "finalizer_beat", f"{beat:.6f}")
        silent = finished.store.finalizer_silent(RUN)
        assert 99.999 <= silent <= 100.001 + time.monotonic() - began
        time.sleep(0.13)


def test_a_run_that_is_over_is_kept_for_a_week(finished: Finished) -> None:  # noqa: F811
    assert finalize(RUN) == "done"

    assert 7 * 86_400 - 60 < finished.store.client.ttl(f"{{run:{RUN}}}") <= 7 * 86_400


def test_a_verdict_that_redis_names_twice_is_one(
    finished: Finished,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it may while it makes room for more."""
    once = list(finished.store.client.hscan_iter(f"{{run:{RUN}}}:results"))
    monkeypatch.setattr(finished.store.client, "hscan_iter", lambda *_, **__: iter(once * 2))

    assert sorted(verdict.rollout_id for verdict in finished.store.verdicts(RUN)) == ["a#0", "b#0"]


def test_a_submitters_heartbeat_ends_with_its_work(client: redis.Redis, finished: Finished) -> None:  # noqa: F811
    stored = reserve(client, "night-2", RunConfig(), "/nowhere", 1)
    assert stored is not None

    def beating() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "submitter's heartbeat"]

    with submitter_beats(stored):
        assert len(beating()) == 1
    assert beating() == []
