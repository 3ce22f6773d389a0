"""A search in a corpus as a tool. Scores come from comparing the answer."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import ClassVar

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import Environment, EnvironmentContext, Observation, Tool, ToolCall, ToolResult
from rollout_tasks.rag_config import RagConfig
from rollout_tasks.retrieval import lexical
from rollout_tasks.retrieval.errors import RetrievalError
from rollout_tasks.retrieval.index import Retriever, corpus_sha256, open_index
from rollout_tasks.retrieval.passages import Hit
from rollout_tasks.retrieval.progress import Say
from rollout_tasks.retrieval.search_r1 import RemoteRetriever
from rollout_tasks.settings import checked_key, settings

logger = logging.getLogger(__name__)

DEFAULT_PASSAGES, MOST_PASSAGES = 3, 20
LONGEST_QUERY = 2_000
LONGEST_PASSAGE = 10_000
"""Characters; more of a passage is not shown."""
CUT = "... (cut)"

SEARCH = Tool(
    name="local_search",
    description=(
        "Searches a collection of documents. Returns the passages that fit the query best, the best first, each with"
        " its id and its title, if it has one."
    ),
    parameters={
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": LONGEST_QUERY,
                "description": "What to look for, in words that its text may have.",
            },
            "top_k": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_PASSAGES,
                "default": DEFAULT_PASSAGES,
                "description": "How many passages to return.",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)

INSTRUCTIONS = (
    "Answer the question from the collection of documents. Search it, as often as you need, also with other words or for"
    " what a passage has led you to. When you are done, answer without calling a tool; end with the final result, as"
    " short as possible."
)


class RagEnvironment(Environment):
    """Questions with a search in a corpus, or at a server that has one."""

    needs_vm: ClassVar[bool] = False
    compares_answers: ClassVar[bool] = True
    queue: ClassVar[str] = "rollout.rag"
    default_agent: ClassVar[str] = "tool_calling"

    def __init__(self, context: EnvironmentContext) -> None:
        """Opens nothing yet."""
        self._options = context.config.rag
        self._retriever: Retriever | None = None

    @classmethod
    def check_available(cls) -> None:
        """Raises unless the package that searches is installed."""
        lexical.tantivy()

    @classmethod
    def preload(cls) -> None:
        """Imports what searches, for all children of a worker at once."""
        import numpy  # noqa: F401 - here, because the processes that submit need none of it

        lexical.tantivy()

    @classmethod
    def check_run(cls, config: RunConfig, say: Say) -> None:
        """Builds the index, so that a wrong corpus is refused before anything is enqueued; or asks the server once."""
        options = config.rag
        if options.corpus is None and options.retriever is None:
            raise RetrievalError("--env-mode rag needs a corpus (--corpus), or a server that has one (--retriever)")
        try:
            _retriever(options, say).search(["test"], 1)
        except RetrievalError as error:
            if str(error).startswith("--"):  # it names the option itself
                raise
            raise RetrievalError(f"{'--corpus' if options.corpus else '--retriever'}: {error}") from error

    @classmethod
    def prepare(cls, config: RunConfig, item: Item) -> Mapping[str, str] | None:  # noqa: ARG003
        """Builds the index, if no process of this machine has done so; returns the hash of the corpus."""
        if config.rag.corpus is None:
            return None
        open_index(config.rag, logger.info)
        return {config.rag.corpus.as_uri(): corpus_sha256(config.rag)}

    def instructions(self, item: Item) -> str:  # noqa: ARG002
        """See `Environment`."""
        return INSTRUCTIONS

    def tools(self) -> list[Tool]:
        """Returns the search."""
        return [SEARCH]

    def reset(self, item: Item) -> Observation:  # noqa: ARG002
        """Opens the index, which `prepare` has built."""
        self._retriever = _retriever(self._options, logger.info)
        return Observation()

    def execute(self, call: ToolCall) -> ToolResult:
        """Searches; it is no failure to find nothing."""
        if self._retriever is None:
            raise RuntimeError("it was not reset")
        query = call.arguments["query"]
        if not query.strip():
            return ToolResult("failed", "the query is empty")
        [hits] = self._retriever.search([query], call.arguments.get("top_k", DEFAULT_PASSAGES))
        return ToolResult("success", "\n\n".join(map(_shown, hits)) or "No passage fits the query; try other words.")


def _retriever(options: RagConfig, say: Say) -> Retriever:
    if options.retriever is None:
        return open_index(options, say)
    token = settings().retriever_token
    return RemoteRetriever(
        options.retriever, checked_key(token.get_secret_value() if token else "", "ROLLOUT_RETRIEVER_TOKEN")
    )


def _shown(hit: Hit) -> str:
    passage = hit.passage
    heading = f"[{passage.id}]" + (f" {passage.title}" if passage.title else "")
    text = passage.text if len(passage.text) <= LONGEST_PASSAGE else passage.text[:LONGEST_PASSAGE] + CUT
    return f"{heading}\n{text}"
