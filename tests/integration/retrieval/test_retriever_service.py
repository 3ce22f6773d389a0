"""`rollouts retriever serve`: the real command, asked as Search-R1 asks its server, and by the client of the environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from rollout_tasks.http_services.retrieve import MOST_CHARACTERS
from rollout_tasks.retrieval import json_endpoint
from rollout_tasks.retrieval.errors import RetrievalError
from rollout_tasks.retrieval.search_r1 import RemoteRetriever
from tests.conftest import REPOSITORY, free_port
from tests.embedding_endpoint import EmbeddingEndpoint, said
from tests.hostile.random_replies.answers import AnswerServer

pytest.importorskip("tantivy")

TOKEN = "a-token-of-the-service"
TITLED = {"id": "rialto", "title": "Rialto Bridge", "text": "Antonio da Ponte designed it."}
UNTITLED = {"id": "tower", "text": "It has two towers."}


class Service:
    """The command."""

    def __init__(self, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        corpus = folder / "corpus.jsonl"
        corpus.write_text(f"{json.dumps(TITLED)}\n{json.dumps(UNTITLED)}\n")
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        command = [sys.executable, "-m", "rollout_tasks.cli.main", "retriever", "serve", str(corpus)]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("ROLLOUT_", "OPENAI_"))}
        self.process = subprocess.Popen(
            [*command, "--port", str(port), *options],
            cwd=REPOSITORY,
            env={**clean, "XDG_CACHE_HOME": str(folder / "cache"), **(environment or {})},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        while "serving 2 passages" not in (line := self.process.stderr.readline()):
            assert line, self.process.wait(10)

    def asked(self, **fields: Any) -> httpx.Response:
        return httpx.post(f"{self.url}/retrieve", json=fields, timeout=30)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=30)
        assert self.process.returncode == 0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("service"))
    yield made
    made.stop()


def test_it_answers_as_search_r1s_server_does(service: Service) -> None:
    answer = service.asked(queries=["Who designed the Rialto?", "towers", "zebra"], topk=1, return_scores=True).json()

    [[first], [second], nothing] = answer["result"]
    assert first["document"]["contents"] == '"Rialto Bridge"\nAntonio da Ponte designed it.'
    assert (first["document"]["id"], first["document"]["title"]) == ("rialto#1", "Rialto Bridge")
    assert first["score"] > 0
    assert second["document"]["contents"] == '"tower"\nIt has two towers.'  # clients take the first line for a title
    assert nothing == []


def test_without_scores_the_documents_stand_alone(service: Service) -> None:
    [[document]] = service.asked(queries=["towers"]).json()["result"]

    assert document["id"] == "tower#1"


def test_what_is_wrong_is_said(service: Service) -> None:
    refused = service.asked(queries="towers", topk=1)

    assert (refused.status_code, refused.json()) == (422, {"detail": "queries must be a list of texts"})
    assert service.asked(queries=[], topk=1, return_scores=True).json() == {"result": []}
    half_a_pair = httpx.post(f"{service.url}/retrieve", content=b'{"queries": ["\\ud800 towers"]}', timeout=30)
    assert half_a_pair.status_code == 200, half_a_pair.text
    assert httpx.get(f"{service.url}/retrieve", timeout=30).status_code == 405
    assert httpx.get(f"{service.url}/health", timeout=30).json() == {"status": "ok"}
    pieces = (b" " * (1 << 20) for _ in range(9))
    too_large = httpx.post(f"{service.url}/retrieve", content=pieces, timeout=30)
    assert (too_large.status_code, too_large.json()) == (413, {"detail": "the body is larger than 4 MiB"})


ODD_QUERIES = {
    "wide": "\ufdfa" * 20_000,
    "many accents": "a" + "\u0301\u0316" * 9_999,
    "many words": " ".join(map(str, range(4_000))),
}
"""Each takes long to normalize or to search for."""


@pytest.mark.parametrize(
    "odd", ["many accents", *(pytest.param(odd, marks=pytest.mark.slow) for odd in ("wide", "many words"))]
)
def test_odd_queries_do_not_keep_others_waiting(odd: str, service: Service) -> None:
    queries = [ODD_QUERIES[odd]] * (MOST_CHARACTERS // len(ODD_QUERIES[odd]))
    with ThreadPoolExecutor(4) as clients:
        large = [clients.submit(service.asked, queries=queries) for _ in range(4)]
        for _ in range(2):
            assert httpx.get(f"{service.url}/health", timeout=10).status_code == 200
            assert service.asked(queries=["towers"]).json()["result"][0][0]["id"] == "tower#1"
        assert [one.result().status_code for one in large] == [200] * 4


def test_the_environments_client_understands_it(service: Service) -> None:
    [[hit], []] = RemoteRetriever(service.url, "").search(["Who designed the Rialto?", "zebra"], 2)

    passage = hit.passage
    assert (passage.id, passage.document_id, passage.title) == ("rialto#1", "rialto", "Rialto Bridge")
    assert passage.text == TITLED["text"]
    assert RemoteRetriever(f"{service.url}/retrieve/", "").search(["towers"], 1)[0][0].passage.id == "tower#1"


@pytest.mark.slow
def test_with_tokens_nobody_else_is_answered(tmp_path: Path) -> None:
    service = Service(tmp_path, environment={"ROLLOUT_SERVICE_TOKENS": f"alice:{TOKEN}"})

    assert service.asked(queries=["towers"]).status_code == 401
    assert httpx.get(f"{service.url}/health", timeout=30).status_code == 200
    assert RemoteRetriever(service.url, TOKEN).search(["towers"], 1)[0]
    with pytest.raises(RetrievalError, match="HTTP 401") as refused:
        RemoteRetriever(service.url, TOKEN[:-1]).search(["towers"], 1)
    assert TOKEN[:-1] not in str(refused.value)
    service.stop()


@pytest.mark.slow
def test_an_endpoint_for_embeddings_that_fails_is_said_to_the_client(tmp_path: Path) -> None:
    endpoint = EmbeddingEndpoint()
    options = ("--retrieval", "dense", "--embedding-model", "m")
    service = Service(tmp_path, *options, environment={"ROLLOUT_EMBEDDINGS_URL": endpoint.url})
    assert service.asked(queries=["towers"], topk=1).json()["result"][0]
    endpoint.each = lambda _: said({"error": "no such model"}, status=404)

    failed = service.asked(queries=["towers"], topk=1)

    assert failed.status_code == 502
    assert failed.json()["detail"].startswith("embeddings of 'm' at http://127.0.0.1:")
    service.stop()
    endpoint.close()


def refusal(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ROLLOUT_")}
    done = subprocess.run(
        [sys.executable, "-m", "rollout_tasks.cli.main", "retriever", "serve", *arguments],
        cwd=REPOSITORY,
        env={**clean, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


def test_other_machines_need_tokens(tmp_path: Path) -> None:
    assert "error: ROLLOUT_SERVICE_TOKENS is not set" in refusal(str(tmp_path), "--host", "0.0.0.0")  # noqa: S104


def test_what_is_no_corpus_is_refused(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    said_of_it = refusal(str(tmp_path / "gone.jsonl"), environment=environment)

    assert said_of_it == f"error: {tmp_path}/gone.jsonl: no such file or directory\n"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"results": []}, "it answered without lists of documents (result)"),
        ({"result": [[], []]}, "it answered with results of 2 queries instead of 1"),
        ({"result": [["text"]]}, "it answered with a result that has no document"),
        ({"result": [[{"document": {"contents": "x"}, "score": "1"}]]}, "a document whose score is not a number"),
        ({"result": [[{"document": {"id": 1}, "score": 1}]]}, "a document that has neither text nor contents"),
    ],
)
def test_a_server_that_answers_nonsense_is_named(answer: object, sentence: str) -> None:
    server = AnswerServer(lambda _: said(answer))

    with pytest.raises(RetrievalError) as refused:
        RemoteRetriever(f"http://127.0.0.1:{server.port}", "").search(["x"], 3)

    assert str(refused.value).startswith(f"the retriever at http://127.0.0.1:{server.port}/retrieve: it answered ")
    assert sentence in str(refused.value)
    server.close()


def test_a_document_of_search_r1s_own_server_is_understood() -> None:
    document = {"id": 12, "contents": '"Rialto Bridge"\nAntonio da Ponte designed it.'}
    asked: list[dict[str, Any]] = []

    def answered(request: Any) -> Any:
        asked.append(json.loads(request.body))
        return said({"result": [[{"document": document, "score": 0.83}] * 5]})

    server = AnswerServer(answered)

    [hits] = RemoteRetriever(f"http://127.0.0.1:{server.port}/retrieve", "").search(["x"], 3)

    assert asked == [{"queries": ["x"], "topk": 3, "return_scores": True}]
    assert [(hit.passage.id, hit.passage.title, hit.score) for hit in hits] == [("12", "Rialto Bridge", 0.83)] * 3
    assert hits[0].passage.text == "Antonio da Ponte designed it."
    server.close()


def test_the_deadline_of_a_call_counts_all_its_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_endpoint, "CALL_SECONDS", 20.0)
    server = AnswerServer(lambda _: said({}, status=503, retry_after=60))

    with pytest.raises(RetrievalError, match=r"HTTP 503: \{\}$"):
        RemoteRetriever(f"http://127.0.0.1:{server.port}", "").search(["x"], 3)

    server.close()
