"""Whatever library an agent connects with, and wherever to, the session gateway gets its request."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.hostile.random_replies.answers import Answer, AnswerServer, Request
from tests.unit.agents.osworld.clients_of_a_model import WAYS

pytest.importorskip("aiohttp")
NO_REPLIES = ("another path", "held back", "names", "one connection")
REPLY = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "42"}}]}


class Gateway:
    """Answers as one would, and keeps what it was sent."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.server = AnswerServer(self._answer)

    def _answer(self, request: Request) -> Answer:
        self.requests.append(request)
        body = gzip.decompress(request.body) if request.headers.get("Content-Encoding") == "gzip" else request.body
        if json.loads(body).get("stream"):
            pieces = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("4", "2")]
            stream = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces) + "data: [DONE]\n\n"
            return Answer(stream.encode(), "text/event-stream")
        return Answer(json.dumps(REPLY).encode())


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], list[Request]]:
    """What came of each way, and what the gateway got."""
    gateway = Gateway()
    folder = tmp_path_factory.mktemp("front")
    clients = Path(__file__).with_name("clients_of_a_model.py")
    command = [sys.executable, str(clients), str(gateway.server.port), str(folder)]
    environment: dict[str, str] = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OPENAI_API_KEY": "none"}
    for name in [
        name for name in environment if name.lower().endswith("_proxy") or name in ("OPENAI_BASE_URL", "SSL_CERT_FILE")
    ]:
        del environment[name]
    run = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=240)
    gateway.server.close()
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout), gateway.requests


@pytest.mark.parametrize("way", [name for name in WAYS if name not in NO_REPLIES])
def test_each_way_leads_to_the_model(way: str, asked: tuple[dict[str, str], list[Request]]) -> None:
    assert asked[0][way] == "42"


def test_a_connection_serves_more_than_one_request(asked: tuple[dict[str, str], list[Request]]) -> None:
    assert asked[0]["one connection"] == "42 42"


def test_replies_are_not_held_back_until_the_agent_has_said_that_it_got_their_head(
    asked: tuple[dict[str, str], list[Request]],
) -> None:
    assert asked[0]["held back"] == "{False}"


def test_nothing_else_is_reached(asked: tuple[dict[str, str], list[Request]]) -> None:
    found, _ = asked
    assert (found["another path"], found["elsewhere"]) == ("404", "storage.example/pictures/1")
    assert json.loads(found["names"]) == [["127.0.0.1", 443], "127.0.0.1"]


def test_the_gateway_gets_the_sessions_key_and_no_other(asked: tuple[dict[str, str], list[Request]]) -> None:
    found, requests = asked
    assert found["compressed"] == "42"
    paths: set[Any] = {request.path for request in requests}
    assert paths == {"/sessions/s/v1/chat/completions"}
    assert {request.headers["Authorization"] for request in requests} == {"Bearer the-token"}
    assert {request.headers.get("Content-Encoding") for request in requests} == {None, "gzip"}
