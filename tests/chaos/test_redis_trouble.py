"""A Redis that is there but refuses, and connections that freeze: workers wait, say so, and go on."""

from __future__ import annotations

import re
import sys
import time

import pytest
import redis

from tests.chaos.proxy import Proxy
from tests.checks import check_broker, check_run
from tests.cluster import QUEUES, Cluster, Run
from tests.conftest import free_port

ROLLOUTS = 12
TROUBLE_SECONDS = 6.0


def submit(cluster: Cluster) -> Run:
    items = [{"id": f"item-{number}", "question": "work"} for number in range(ROLLOUTS)]
    return cluster.submit({"env_mode": "simulated", "simulated": {"seconds": [0.5, 1.0], "needs_vm": False}}, items)


def out_of_memory(client: redis.Redis, begin: bool) -> None:
    client.config_set("maxmemory", 1 if begin else 0)


def replica_of_nobody(client: redis.Redis, begin: bool) -> None:
    client.execute_command("REPLICAOF", *(("127.0.0.1", free_port()) if begin else ("NO", "ONE")))


def wait_until_said(cluster: Cluster, worker: str, sentence: str) -> None:
    deadline = time.monotonic() + 60
    while sentence not in (cluster.folder / f"{worker}.log").read_text():
        assert time.monotonic() < deadline, f"{worker} never said: {sentence}"
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("trouble", "code"), [(out_of_memory, "OOM"), pytest.param(replica_of_nobody, "READONLY", marks=pytest.mark.slow)]
)
def test_a_refusing_redis_is_waited_out(cluster: Cluster, trouble: object, code: str) -> None:
    assert callable(trouble)
    cluster.start_worker(concurrency=2)
    run = submit(cluster)
    run.wait_for(committed=2)
    children = {child.pid for child in cluster.children()}

    trouble(cluster.client, True)
    cluster.start_worker("begun-meanwhile", concurrency=2)
    wait_until_said(cluster, "begun-meanwhile", f"Redis refuses: {code}")
    time.sleep(TROUBLE_SECONDS)
    trouble(cluster.client, False)

    run.wait(seconds=120)
    assert check_run(run, rollouts=ROLLOUTS) == {"completed": ROLLOUTS}
    check_broker(cluster)
    assert cluster.processes["worker"].poll() is None, "the worker ended"
    assert {child.pid for child in cluster.children()} == children, "a child ended"
    log = (cluster.folder / "worker.log").read_text()
    assert f"waiting for Redis: Redis refuses: {code}" in log
    assert "Redis works again" in log
    cluster.wait_for_worker("begun-meanwhile")
    log = (cluster.folder / "begun-meanwhile.log").read_text()
    assert log.count("no task is taken or sent until it accepts commands again") == 1
    assert log.count("Redis accepts commands again, after") == 1


@pytest.mark.slow
def test_a_frozen_connection_makes_nobody_deaf(cluster: Cluster) -> None:
    with Proxy(cluster.valkey.port) as proxy:
        url = cluster.valkey.url.replace(f":{cluster.valkey.port}/", f":{proxy.port}/")
        cluster.environments["worker"] = {"REDIS_URL": url, "ROLLOUT_REDIS_URL": url}
        cluster.start_worker(concurrency=2)
        run = submit(cluster)
        run.wait_for(committed=2)
        processes = {cluster.processes["worker"].pid, *(child.pid for child in cluster.children())}

        proxy.freeze()

        run.wait(seconds=120)
        assert {cluster.processes["worker"].pid, *(child.pid for child in cluster.children())} == processes
        assert check_run(run, rollouts=ROLLOUTS) == {"completed": ROLLOUTS}
        check_broker(cluster)
        cluster.stop("worker")


@pytest.mark.slow
def test_an_outage_is_a_few_lines_in_the_log(cluster: Cluster) -> None:
    workers = ["one", "two"]
    for name in workers:
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "rollout_tasks",
            "worker",
            "--concurrency=2",
            "--loglevel=INFO",
        ]
        cluster.start(name, [*command, f"--hostname={name}@%h", f"--queues={QUEUES}"])
    for name in workers:
        cluster.wait_for_worker(name)
    run = submit(cluster)
    run.wait_for(committed=2)

    cluster.valkey.kill()
    time.sleep(TROUBLE_SECONDS)
    cluster.valkey.start()

    run.wait(seconds=120)
    assert check_run(run, rollouts=ROLLOUTS) == {"completed": ROLLOUTS}
    for name in workers:
        log = (cluster.folder / f"{name}.log").read_text()
        assert "Connection to broker lost" in log
        assert log.count("Connected to redis") == 2
        assert [
            line for line in log.splitlines() if re.search("Traceback|AttributeError|mingle|In Celery 5.1", line)
        ] == []
