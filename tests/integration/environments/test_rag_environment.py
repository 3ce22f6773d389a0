"""The environment `rag`: what its tool answers, from a corpus and from a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks import registry
from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.environments.base import EnvironmentContext, Observation, ToolCall, ToolResult
from rollout_tasks.environments.rag.environment import CUT, LONGEST_PASSAGE, RagEnvironment
from rollout_tasks.errors import UserError
from rollout_tasks.retrieval import index, json_endpoint
from tests.conftest import free_port
from tests.embedding_endpoint import said
from tests.hostile.random_replies.answers import AnswerServer

pytest.importorskip("tantivy")

ITEM = Item(id="1", question="Who designed the Rialto Bridge?", answer="Antonio da Ponte")
DOCUMENTS = [
    {"id": "rialto", "title": "Rialto Bridge", "text": "Antonio da Ponte designed the bridge."},
    {"id": "tower", "text": "This bridge has two towers."},
    {"id": "pont", "text": "A bridge without its arches."},
    {"id": "golden", "text": "A red bridge."},
]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    index._opened.cache_clear()
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in DOCUMENTS))
    return parse_config({"env_mode": "rag", "rag": {"corpus": str(path)}})


def opened(config: RunConfig) -> RagEnvironment:
    environment = RagEnvironment(EnvironmentContext(config, Path(), None))
    assert environment.reset(ITEM) == Observation()
    return environment


def searched(config: RunConfig, **arguments: Any) -> ToolResult:
    return opened(config).execute(ToolCall("c", "local_search", arguments))


def test_the_tool_is_the_one_that_agents_know(config: RunConfig) -> None:
    [tool] = opened(config).tools()

    assert tool.name == "local_search"
    assert tool.parameters["required"] == ["query"]
    assert tool.parameters["properties"]["top_k"]["default"] == 3


def test_passages_come_with_their_ids_and_titles(config: RunConfig) -> None:
    result = searched(config, query="Rialto, designed by; towers", top_k=2)

    assert result == ToolResult(
        "success",
        "[rialto#1] Rialto Bridge\nAntonio da Ponte designed the bridge.\n\n[tower#1]\nThis bridge has two towers.",
    )


def test_three_passages_are_usual(config: RunConfig) -> None:
    assert searched(config, query="bridge").response.count("#1]") == 3


def test_to_find_nothing_is_no_failure_but_an_empty_query_is(config: RunConfig) -> None:
    assert searched(config, query="zebra") == ToolResult("success", "No passage fits the query; try other words.")
    assert searched(config, query="  ") == ToolResult("failed", "the query is empty")


def test_a_long_passage_is_cut(config: RunConfig) -> None:
    path = Path(str(config.rag.corpus))
    path.write_text(json.dumps({"id": "long", "text": f"word {'x' * (2 * LONGEST_PASSAGE)}"}))

    response = searched(config, query="word").response

    assert response.endswith(f"x{CUT}")
    assert len(response) < LONGEST_PASSAGE + 50


def test_an_attempt_records_the_hash_of_its_corpus(config: RunConfig) -> None:
    corpus = Path(str(config.rag.corpus))
    first = RagEnvironment.prepare(config, ITEM)

    assert first is not None
    assert list(first) == [corpus.as_uri()]
    with corpus.open("a") as file:
        file.write('{"text": "more"}\n')
    assert RagEnvironment.prepare(config, ITEM) != first


def test_scores_come_from_comparing_the_answer(config: RunConfig) -> None:
    environment = opened(config)

    assert environment.evaluate() is None
    assert registry.environment("rag").compares_answers
    assert not registry.environment("rag").needs_vm_for(config, ITEM)
    environment.close()


def test_a_server_takes_the_place_of_a_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answered(request: Any) -> Any:
        asked.append((request.headers.get("Authorization"), json.loads(request.body)))
        return said({"result": [[{"document": {"id": "7", "contents": '"Title"\nText.'}, "score": 1}]]})

    server = AnswerServer(answered)
    monkeypatch.setenv("ROLLOUT_RETRIEVER_TOKEN", "the-token")
    config = parse_config({"env_mode": "rag", "rag": {"retriever": f"http://127.0.0.1:{server.port}"}})

    RagEnvironment.check_run(config, lambda _sentence: None)
    assert RagEnvironment.prepare(config, ITEM) is None
    assert searched(config, query="q", top_k=1).response == "[7] Title\nText."

    assert asked[-1] == ("Bearer the-token", {"queries": ["q"], "topk": 1, "return_scores": True})
    server.close()


def refusal(config: RunConfig) -> str:
    with pytest.raises(UserError) as refused:
        RagEnvironment.check_run(config, lambda _sentence: None)
    return str(refused.value)


def test_a_run_is_refused_before_it_begins(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_endpoint, "TRIES", 1)
    corpus = Path(str(config.rag.corpus))

    assert refusal(parse_config({})) == (
        "--env-mode rag needs a corpus (--corpus), or a server that has one (--retriever)"
    )
    corpus.write_text('{"text": ""}\n')
    assert refusal(config) == f"--corpus: {corpus}, line 1: its text is empty"
    nowhere = f"http://127.0.0.1:{free_port()}"
    assert refusal(parse_config({"rag": {"retriever": nowhere}})).startswith(
        f"--retriever: the retriever at {nowhere}/retrieve: cannot be reached"
    )
