"""A run on workers whose model is a pool of servers; one of them stops in the middle, and comes back."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout_tasks.trajectories.reader import read_trajectory
from tests.acceptance.commands import command, popen
from tests.cluster import Cluster
from tests.hostile.random_replies.answers import Answer, AnswerServer, Request

ITEMS = 12
REPLY = {
    "model": "policy",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "The answer is 42"}}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5},
}


class Server:
    """Serves the model, or answers 503."""

    def __init__(self) -> None:
        self.works = True
        self.served = 0
        self._server = AnswerServer(self._answer)
        self.url = f"http://127.0.0.1:{self._server.port}/v1"
        self.close = self._server.close

    def _answer(self, request: Request) -> Answer:
        if not self.works:
            return Answer(b"{}", status=503)
        if not request.body:
            return Answer(json.dumps({"object": "list", "data": [{"id": "policy"}]}).encode())
        self.served += 1
        time.sleep(0.2)
        return Answer(json.dumps(REPLY).encode())


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    made = [Server(), Server()]
    yield made
    for server in made:
        server.close()


def test_a_server_that_stops_costs_no_rollout(cluster: Cluster, servers: list[Server], tmp_path: Path) -> None:
    data = tmp_path / "items.jsonl"
    data.write_text(
        "".join(json.dumps({"id": f"i{n}", "question": f"6 * 7? {n}", "answer": "42"}) + "\n" for n in range(ITEMS))
    )
    run = ("--data-path", str(data), "--env-mode", "math", "--metric", "final_number", "--model", "policy")
    pooled = (*run, "--model-pool", "policy", "--output-dir", str(tmp_path), "--run-id", "pooled")

    refused = popen(cluster, *pooled).communicate(timeout=60)[1]
    assert "--model-pool policy: it has no replica: start some, as with rollouts model attach policy URL" in refused

    attach = [sys.executable, "-m", "rollout_tasks.cli.main", "model", "attach", "policy"]
    cluster.start(
        "attach", [*attach, *(server.url for server in servers), "--model", "policy", "--weight-version", "step-1"]
    )
    deadline = time.monotonic() + 60
    while popen(cluster, *pooled, "--dry-run").wait(60):
        assert time.monotonic() < deadline
    cluster.start_worker(concurrency=2, queues="rollout.light,finalize")
    submitted = command(cluster, *pooled)
    while sum(server.served for server in servers) < ITEMS // 3 + len(servers):
        assert time.monotonic() < deadline + 60
        time.sleep(0.05)
    servers[0].works = False
    folder = Path(submitted["folder"])
    while not (folder / "evaluation_results.json").exists() and not list(folder.glob("evaluation*.json")):
        assert time.monotonic() < deadline + 120, list(folder.iterdir())
        time.sleep(0.2)

    attempts = sorted(folder.glob("i*/0/attempt-1"))
    assert len(attempts) == ITEMS
    verdicts = [json.loads((attempt / "result.json").read_text()) for attempt in attempts]
    assert {(verdict["status"], verdict["answer"]) for verdict in verdicts} == {("completed", "The answer is 42")}
    replies = [reply for attempt in attempts for reply in read_trajectory(attempt).replies]
    assert {reply.served["version_at_end"] for reply in replies} == {"step-1"}
    assert len({reply.served["replica"] for reply in replies}) == 2
