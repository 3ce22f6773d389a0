"""How fast a corpus is indexed and searched, what is found, and what memory readers take.

The documents are made up, from words as frequent as in natural language; each query has words of one document, which it must find.
What is found lexically stands beside what bm25s finds for the same queries. The vectors come from a stand-in: a server of this
program whose embedding of a text is the sum of fixed random vectors of its words, weighted by how rare they are. It shows that the
machinery works; it says nothing about embeddings of a model. Not a test: it says how fast this machine is today.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import openai  # noqa: F401 - as workers do before they fork
import psutil
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rollout_tasks.environments.rag.environment import RagEnvironment
from rollout_tasks.rag_config import RagConfig
from rollout_tasks.retrieval.index import Retriever, open_index
from rollout_tasks.settings import settings

WORDS = 60_000
"""Different words; the n-th is used about as often as 1/n."""
DIMENSION = 256
TOP = 5
QUERY_WORDS, STRAY_WORDS = 4, 2
"""Of a query: words of the document, not the most frequent ones, and others."""
FREQUENT = 200
"""So many words occur nearly everywhere, and are no query's."""


def word(number: int) -> str:
    """A made-up word, always the same."""
    letters = "bdfgklmnprstvz"
    name = ""
    while True:
        number, letter = divmod(number, len(letters) * 5)
        name += letters[letter // 5] + "aeiou"[letter % 5]
        if number == 0:
            return name


def documents(count: int, chance: random.Random) -> Iterator[list[int]]:
    """Yields documents as the numbers of their words."""
    shares = list(accumulate(1 / (rank + 1) for rank in range(WORDS)))
    for _ in range(count):
        yield chance.choices(range(WORDS), cum_weights=shares, k=chance.randint(60, 140))


def write_corpus(path: Path, count: int, queries: int, seed: int) -> list[tuple[str, str]]:
    """Writes a corpus; returns queries, each with the id of the document that it is about."""
    chance = random.Random(seed)
    asked = set(chance.sample(range(count), queries))
    found = []
    with path.open("w", encoding="utf-8") as file:
        for number, words in enumerate(documents(count, chance)):
            text = " ".join(map(word, words))
            file.write(json.dumps({"id": str(number), "text": text}) + "\n")
            rarer = sorted({one for one in words if one >= FREQUENT})
            if number in asked and len(rarer) >= QUERY_WORDS:
                chosen = chance.sample(rarer, QUERY_WORDS) + [chance.randrange(WORDS) for _ in range(STRAY_WORDS)]
                chance.shuffle(chosen)
                found.append((" ".join(map(word, chosen)), str(number)))
    return found


class StandIn(BaseHTTPRequestHandler):
    """The stand-in for a model of embeddings."""

    protocol_version = "HTTP/1.1"
    vectors: Any = None
    numbers: dict[str, int] = {}  # noqa: RUF012 - made once, before it serves

    @classmethod
    def serve(cls) -> None:
        """Serves until it is killed; says its port first."""
        ranks = np.arange(WORDS)
        drawn = np.random.default_rng(0).standard_normal((WORDS, DIMENSION), dtype=np.float32)
        weights = np.where(ranks < FREQUENT, 0, np.log(2 + ranks) ** 2).astype(np.float32)
        cls.vectors = drawn * weights[:, None]
        cls.numbers = {word(number): number for number in range(WORDS)}
        server = ThreadingHTTPServer(("127.0.0.1", 0), cls)
        print(server.server_address[1], flush=True)
        server.serve_forever()

    def do_POST(self) -> None:
        """Embeds."""
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        data = [{"index": place, "embedding": self._embedded(text)} for place, text in enumerate(texts)]
        body = json.dumps({"data": data}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + body)  # at once: Nagle's algorithm would hold the second of two pieces back

    def _embedded(self, text: str) -> list[float]:
        rows = [self.numbers[one] for one in text.split() if one in self.numbers]
        return [round(float(number), 4) for number in self.vectors[rows].sum(0)] if rows else [1.0] * DIMENSION

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def stand_in() -> Iterator[None]:
    """Has embeddings come from the stand-in."""
    process = subprocess.Popen([sys.executable, __file__, "--stand-in"], stdout=subprocess.PIPE, text=True)
    port = int(process.stdout.readline()) if process.stdout else 0
    os.environ["ROLLOUT_EMBEDDINGS_URL"] = f"http://127.0.0.1:{port}/v1"
    settings.cache_clear()
    try:
        yield
    finally:
        process.kill()
        process.wait()


def searched(retriever: Retriever, queries: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Searches for each query alone; returns how often its document was found, and the times."""
    hits, milliseconds = 0, []
    for query, answer in queries:
        began = time.perf_counter()
        [found] = retriever.search([query], TOP)
        milliseconds.append((time.perf_counter() - began) * 1000)
        hits += answer in {hit.passage.document_id for hit in found}
    cuts = statistics.quantiles(milliseconds, n=20)
    return {f"recall@{TOP}": hits / len(queries), "p50_ms": statistics.median(milliseconds), "p95_ms": cuts[18]}


def bm25s_directly(corpus: Path, queries: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The same with the package bm25s, as its page says to use it."""
    try:
        import bm25s  # here, because nothing else needs it
    except ImportError:
        return {"not compared": "uv pip install bm25s"}
    began = time.perf_counter()
    rows = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
    model = bm25s.BM25()
    model.index(bm25s.tokenize([row["text"] for row in rows], stopwords=None, show_progress=False), show_progress=False)
    built = time.perf_counter() - began
    hits, milliseconds = 0, []
    for query, answer in queries:
        began = time.perf_counter()
        tokens = bm25s.tokenize(query, stopwords=None, show_progress=False)
        found, _ = model.retrieve(tokens, k=TOP, show_progress=False)
        milliseconds.append((time.perf_counter() - began) * 1000)
        hits += answer in {rows[row]["id"] for row in found[0]}
    return {"built_s": built, f"recall@{TOP}": hits / len(queries), "p50_ms": statistics.median(milliseconds)}


def memory(options: RagConfig, queries: Sequence[tuple[str, str]], readers: int) -> float:
    """Returns the MiB (PSS) of a process and so many forked children that have searched, as a worker has them."""
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        RagEnvironment.preload()
        gc.collect()
        gc.freeze()
        children = [_reader(options, queries, write) for _ in range(readers)]
        os.close(write)
        for child in children:
            os.waitpid(child, 0)
        os._exit(0)
    os.close(write)
    for _ in range(readers):
        if os.read(read, 1) != b".":
            raise SystemExit("a reader failed")
    family = [psutil.Process(parent), *psutil.Process(parent).children()]
    total = sum(one.memory_full_info().pss for one in family) / (1 << 20)
    for reader in family[1:]:
        reader.send_signal(signal.SIGTERM)
    os.waitpid(parent, 0)
    os.close(read)
    return total


def _reader(options: RagConfig, queries: Sequence[tuple[str, str]], write: int) -> int:
    child = os.fork()
    if child == 0:
        index = open_index(options)
        for query, _ in queries:
            index.search([query], TOP)
        os.write(write, b".")
        signal.pause()
    return child


def one_way(options: RagConfig, queries: Sequence[tuple[str, str]], readers: int) -> dict[str, Any]:
    """Builds an index and searches it."""
    began = time.perf_counter()
    child = os.fork()  # so that what building takes is not in the readers' memory
    if child == 0:
        open_index(options, lambda sentence: print(sentence, file=sys.stderr))
        os._exit(0)
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit("the index was not built")
    taken = {"built_s": time.perf_counter() - began, "of_processor_s": used.ru_utime + used.ru_stime}
    found: dict[str, Any] = {**taken, "built_in_MiB": used.ru_maxrss / 1024}
    one, all_of_them = memory(options, queries, 1), memory(options, queries, readers)
    index = open_index(options)
    return {**found, **searched(index, queries), "pss_1_MiB": one, f"pss_{readers}_MiB": all_of_them}


def main(
    count: Annotated[int, typer.Option("--documents", min=100, help="Of the corpus searched lexically.")] = 100_000,
    dense: Annotated[int, typer.Option(min=100, help="Documents of the corpus searched by vectors.")] = 20_000,
    queries: Annotated[int, typer.Option(min=20)] = 500,
    readers: Annotated[int, typer.Option(min=2, help="Processes that share the index.")] = 8,
    seed: Annotated[int, typer.Option()] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Makes corpora, indexes them, searches them in each way, and measures."""
    found: dict[str, dict[str, Any]] = {"load": {"of this machine": os.getloadavg()[0], "cores": os.cpu_count()}}
    with tempfile.TemporaryDirectory(prefix="bench-retrieval-", dir=os.environ.get("TMPDIR")) as folder, stand_in():
        os.environ["XDG_CACHE_HOME"] = folder
        corpus, smaller = Path(folder) / "corpus.jsonl", Path(folder) / "smaller.jsonl"
        asked = write_corpus(corpus, count, queries, seed)
        found[f"lexical, {count:,} documents"] = one_way(RagConfig(corpus=corpus), asked, readers)
        found[f"bm25s directly, {count:,} documents"] = bm25s_directly(corpus, asked)
        asked = write_corpus(smaller, dense, min(queries, dense // 2), seed)
        for way in ("lexical", "dense", "fused"):
            options = RagConfig.model_validate({"corpus": smaller, "retrieval": way, "embedding_model": "stand-in"})
            found[f"{way} (vectors of a stand-in), {dense:,} documents"] = one_way(options, asked, readers)
    found["load"]["at the end"] = os.getloadavg()[0]
    if as_json:
        print(json.dumps(found))
        return
    table = Table("", "")
    for name, figures in found.items():
        shown = {what: f"{value:.4g}" if isinstance(value, float) else value for what, value in figures.items()}
        table.add_row(name, ", ".join(f"{what} {value}" for what, value in shown.items()))
    Console().print(table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stand-in"]:
        StandIn.serve()
    else:
        typer.run(main)
