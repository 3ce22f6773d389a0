"""`rollouts serve` with a real broker, worker and VMs: what it does, what it waits for, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from rollout_tasks import Index
from tests.chaos.test_service_loop import check_groups, items, journal, start_loop, state, wait_for
from tests.cluster import Cluster

pytestmark = pytest.mark.timeout(500)


@pytest.fixture(name="running")
def _running(cluster: Cluster) -> Cluster:
    cluster.write_items(items(4))
    cluster.start_worker(concurrency=4)
    cluster.start_vm_host(num_vms=4)
    cluster.wait_for_worker()
    return cluster


def ended(cluster: Cluster, seconds: float = 180) -> int:
    return cluster.processes["loop"].wait(seconds)


def command(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rollout_tasks.cli.main", "serve", "--output-dir", str(cluster.results), *words],
        env=cluster.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_each_item_is_a_group_in_each_epoch(running: Cluster) -> None:
    start_loop(running, "--epochs", "2", "--until-idle")

    assert ended(running) == 0

    assert check_groups(running) == dict.fromkeys([f"{epoch}:item-{item}" for epoch in (0, 1) for item in range(4)], 1)
    now = state(running)
    assert (now["doing"], now["groups_ended"], now["rollouts_counted"]) == ("stopped", 8, 24)


def test_each_group_is_in_the_index_for_trainers(running: Cluster) -> None:
    index = Index(f"sqlite:///{running.folder}/index.sqlite")
    running.environments["loop"] = {"ROLLOUT_INDEX_URL": f"sqlite:///{running.folder}/index.sqlite"}
    start_loop(running, "--epochs", "1", "--until-idle", "--index")

    assert ended(running) == 0

    again = [index.add(running.results / line["run_id"]) for line in journal(running) if line["kind"] == "begun"]
    assert len(again) == 4
    assert [(one.new, one.changed) for one in again] == [(0, 0)] * 4


@pytest.mark.slow
def test_sigterm_lets_what_is_out_end_and_the_loop_goes_on_where_it_was(running: Cluster) -> None:
    start_loop(running, "--epochs", "3", "--until-idle")
    wait_for(running, "under way", lambda now: now["groups_ended"] >= 2, 150)
    running.processes["loop"].send_signal(signal.SIGTERM)

    assert ended(running) == 0

    assert state(running)["because"] == "everything that was begun has ended"
    assert len(check_groups(running)) < 12
    start_loop(running, "--epochs", "3", "--until-idle")
    assert ended(running) == 0
    assert len(check_groups(running)) == 12


@pytest.mark.slow
def test_a_second_signal_leaves_what_is_out_to_the_workers(running: Cluster) -> None:
    running.write_items([{**one, "env_config": {"seconds": [4.0, 4.0]}} for one in items(2)])
    start_loop(running, "--epochs", "1", "--until-idle")
    wait_for(running, "busy", lambda now: now["groups_under_way"] == 2, 150)
    running.processes["loop"].send_signal(signal.SIGTERM)
    wait_for(running, "draining", lambda now: now["doing"] == "draining", 60)
    running.processes["loop"].send_signal(signal.SIGTERM)

    assert ended(running, 60) == 1

    assert state(running)["because"] == "the workers go on with what is out"
    start_loop(running, "--epochs", "1", "--until-idle")
    assert ended(running) == 0
    assert len(check_groups(running)) == 2


def test_it_says_what_it_waits_for(cluster: Cluster) -> None:
    cluster.write_items(items(1))
    start_loop(cluster, "--epochs", "1", "--until-idle")
    wait_for(
        cluster,
        "blocked",
        lambda now: now["doing"] == "blocked" and "the pool 'default' has no VMs" in now["because"],
        60,
    )
    said = command(cluster, "--name", "night", "--state")
    assert (said.returncode, said.stdout.partition(":")[0]) == (0, "blocked")

    cluster.start_vm_host()
    wait_for(cluster, "without a worker", lambda now: "no worker" in now["because"], 150)
    cluster.start_worker()

    assert ended(cluster) == 0
    said = command(cluster, "--name", "night", "--state", "--json")
    assert json.loads(said.stdout)["doing"] == "stopped"


def test_items_come_from_a_stream(running: Cluster) -> None:
    start_loop_of_stream(running)
    wait_for(running, "idle", lambda now: now["doing"] == "idle", 150)
    with running.client as client:
        client.xadd("todo", {"item": json.dumps(items(1)[0])})
        client.xadd("todo", {"item": "{"})
        client.xadd("todo", {"item": json.dumps(items(2)[1])})
        wait_for(running, "done", lambda now: now["groups_ended"] == 2 and now["doing"] == "idle", 150)
        assert client.xpending("todo", "rollouts-serve")["pending"] == 0  # type: ignore[index]
    assert "left out: entry" in (running.folder / "loop.log").read_text()
    running.processes["loop"].send_signal(signal.SIGTERM)
    assert ended(running) == 0
    assert [line["item_id"] for line in journal(running) if line["kind"] == "begun"] == ["item-0", "item-1"]


def start_loop_of_stream(cluster: Cluster) -> None:
    words = ["serve", "--name", "night", "--stream", "todo", "--env-mode", "simulated", "-n", "3", "--json"]
    whole = [sys.executable, "-m", "rollout_tasks.cli.main", *words, "--output-dir", str(cluster.results)]
    cluster.start("loop", whole)


def test_a_level_group_stops_early_and_is_marked(running: Cluster) -> None:
    config = {"seconds": [1.0, 1.0], "success_rate": 1.0}
    running.write_items([{**items(1)[0], "env_config": config}])
    start_loop(running, "-n", "20", "--epochs", "1", "--until-idle", "--policy-option", "level_after=3")

    assert ended(running) == 0

    (group,) = [line for line in journal(running) if line["kind"] == "ended"]
    assert group["stopped_early"]
    assert 3 <= len(group["rewards"]) < 20
    assert set(group["rewards"]) == {1.0}
    assert group["left_out"] == {"cancelled": 20 - len(group["rewards"])}


@pytest.mark.slow
def test_rollouts_that_the_infrastructure_lost_are_sampled_again(running: Cluster) -> None:
    config = {"seconds": [0.1, 0.1], "fail": "vm_lost", "fail_times": 2}
    running.write_items([{**items(1)[0], "env_config": config}])
    start_loop(running, "--epochs", "1", "--until-idle", "--max-attempts", "1")

    assert ended(running) == 0

    (group,) = [line for line in journal(running) if line["kind"] == "ended"]
    assert (len(group["rewards"]), group["left_out"]) == (3, {})


@pytest.mark.slow
def test_it_holds_off_while_everything_is_lost(running: Cluster) -> None:
    """One wrong address does not fail a thousand rollouts."""
    config = {"seconds": [0.1, 0.1], "fail": "vm_lost", "fail_times": 1000}
    running.write_items([{**one, "env_config": config} for one in items(50)])
    start_loop(running, "--epochs", "1", "--max-attempts", "1")

    wait_for(running, "blocked", lambda now: "groups in a row were lost to the infrastructure" in now["because"], 150)

    time.sleep(3)
    assert len([line for line in journal(running) if line["kind"] == "begun"]) <= 20, (
        "twice what is out, and one at a time"
    )
    running.processes["loop"].send_signal(signal.SIGTERM)
    assert ended(running) == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "--data-path or --stream: name one of them"),
        (("--data-path", "none.jsonl"), "none.jsonl"),
        (("--data-path", "x", "--stream", "y"), "--data-path or --stream: name one of them"),
        (("--data-path", "x", "--checkpoints", "y"), "--checkpoints: name the pool"),
        (("--data-path", "x", "--run-id", "y"), "--run-id: the loop names its runs itself"),
        (("--data-path", "x", "--policy", "luck"), "unknown sampling policy 'luck'"),
        (
            ("--data-path", "x", "--policy-option", "luck=1"),
            "--policy-option: 'luck' is none of --policy fixed: it has level_after",
        ),
        (("--name", "../x", "--data-path", "x"), "--name"),
        (("--state",), "is not the folder of a service loop"),
    ],
)
def test_wrong_options_are_one_sentence(cluster: Cluster, words: tuple[str, ...], problem: str) -> None:
    done = command(cluster, *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_two_loops_of_one_name_are_refused(running: Cluster) -> None:
    start_loop(running)
    wait_for(running, "busy", lambda now: now["doing"] == "busy", 150)

    done = command(running, "--name", "night", "--data-path", str(running.items_file), "--env-mode", "simulated")

    assert (done.returncode, done.stdout) == (2, "")
    assert "a loop night is running already" in done.stderr
