"""`rollouts retriever`: serves the passages of a corpus to environments, agents and trainers elsewhere."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollout_tasks.cli import listening, program
from rollout_tasks.cli.http_server import running_server, serve_until
from rollout_tasks.config import parse_config
from rollout_tasks.http_services.tokens import ServiceTokens
from rollout_tasks.rag_config import RagConfig
from rollout_tasks.settings import settings

if TYPE_CHECKING:
    from rollout_tasks.retrieval.index import Index

logger = logging.getLogger(__name__)
application = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Serve the passages of a corpus.

    [bold]rollouts retriever serve corpus.jsonl[/bold]
    """,
)

_DEFAULTS = RagConfig()
_MOST_CONNECTIONS = 256


@application.callback()
def retriever() -> None:
    """Keeps `serve` a subcommand, although it is the only one."""


@application.command(context_settings=program.any_spelling())
def serve(
    corpus: Annotated[
        Path, typer.Argument(metavar="CORPUS", help="JSONL, JSON, Parquet or text: a file, or a folder of them.")
    ],
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: a free one.")] = 8000,
    retrieval: Annotated[
        str, typer.Option(help="By words (lexical), by embeddings (dense), or both (fused).")
    ] = _DEFAULTS.retrieval,
    embedding_model: Annotated[
        str | None, typer.Option(help="The model of the embeddings, at ROLLOUT_EMBEDDINGS_URL.")
    ] = None,
    chunk_words: Annotated[int, typer.Option(help="Words of a passage at most.")] = _DEFAULTS.chunk_words,
    chunk_overlap: Annotated[
        int | None, typer.Option(help="Words that a passage shares with the one before. Default: a fifth of them.")
    ] = None,
) -> None:
    """Serve a corpus over Search-R1's protocol until Ctrl-C or SIGTERM.

    POST /retrieve takes queries, topk and return_scores. The index is built
    first, if this machine does not have it yet. If ROLLOUT_SERVICE_TOKENS is set,
    as it must be unless the address is this machine's own (127.0.0.1), clients
    need one of its tokens.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for noisy in ("httpx", "httpx2"):
        logging.getLogger(noisy).setLevel(logging.WARNING)  # they tell of every request
    given = {"corpus": corpus, "retrieval": retrieval, "embedding_model": embedding_model}
    options = parse_config({"rag": {**given, "chunk_words": chunk_words, "chunk_overlap": chunk_overlap}}).rag
    tokens = _tokens(host)
    from rollout_tasks.retrieval.index import open_index  # here, because wrong options need none of it

    index = open_index(options, logger.info)
    stop = program.stopped_by_signals()
    with listening.listener(
        host, port
    ) as listener:  # only now: until then, clients are refused instead of kept waiting
        listening.warn_without_tls(host)
        _serve(index, f"{len(index.passages):,} passages of {options.corpus}", tokens, listener, stop)


def _tokens(host: str) -> ServiceTokens | None:
    """Returns who may use the server; None if everybody on this machine may."""
    given = settings().service_tokens
    if given is None and listening.is_loopback(host):
        return None
    return ServiceTokens(given.get_secret_value() if given is not None else "")


def _serve(index: Index, what: str, tokens: ServiceTokens | None, listener: Any, stop: threading.Event) -> None:
    # Here, as in `serve`.
    from rollout_tasks.http_services.retrieve import RetrieveService

    application = RetrieveService(index).application(tokens)
    with running_server(application, listener, most_connections=_MOST_CONNECTIONS) as server:
        logger.info("serving %s at %s/retrieve", what, listening.url_of(listener))
        serve_until(stop, server)


def main() -> None:
    """Runs the command."""
    program.run(application)


if __name__ == "__main__":
    main()
