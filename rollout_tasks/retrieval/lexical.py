"""The lexical index: BM25 over the words of passages, by tantivy, whose files all processes of a machine map into memory.

Words are letters and digits, without case and accents; each Chinese or Japanese character is a word. Nothing is stemmed.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Any, Self

from rollout_tasks.retrieval.errors import RetrievalError
from rollout_tasks.retrieval.passages import Passage

NOT_INSTALLED = "searching a corpus needs the package tantivy: uv pip install tantivy"
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}"
_WORDS = rf"[{_UNSPACED}]|[[\p{{L}}\p{{M}}\p{{N}}]--[{_UNSPACED}]]+"
_ANALYZER, _TEXT, _ROW = "words", "text", "row"
_FREQUENCIES = "freq"
"""What is kept of a word in a passage; its places are not needed."""
_LONGEST_WORD = 255
"""Bytes; longer ones are no words."""
_HEAP_BYTES = 256_000_000
"""As long as an index fits in, it has one segment, and the same corpus gives the same order of equal scores."""
_MOST_TERMS = 256
"""Different words of a query that count."""
_MOST_READ = 4_000
"""Characters of a query that count."""
_MOST_WRITTEN, _ALWAYS_WRITTEN = 4, 64
"""Characters that one of a query may become when it is normalized, and how many more a query may: a few become 18."""
_PIECE = re.compile(r"\s*\S{1,250}")
"""What is normalized at once, a word: where many accents follow each other, the time grows with the square of their number."""
_MORE_HITS = 20
"""How many more hits are asked for, so that the order of equal scores at the end of a list is that of the corpus."""


def tantivy() -> Any:
    """Returns the package.

    Raises:
        RetrievalError: It is not installed.
    """
    try:
        import tantivy  # here, because it is optional
    except ImportError as error:
        raise RetrievalError(NOT_INSTALLED) from error
    return tantivy


def version() -> str:
    """Returns the version of the index's files."""
    return str(tantivy().__version__)


class LexicalWriter:
    """Writes an index, passage by passage; a context manager."""

    def __init__(self, folder: Path) -> None:
        """Begins an index in an empty folder.

        Raises:
            RetrievalError: The package is not installed.
        """
        self._package = tantivy()
        index = self._package.Index(_schema(self._package), path=str(folder))
        index.register_tokenizer(_ANALYZER, _analyzer(self._package))
        self._writer = index.writer(_HEAP_BYTES, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer = None  # which ends its threads: they would go on writing while the folder is removed

    def add(self, row: int, passage: Passage) -> None:
        """Adds the passage in a row of the store; its title counts as text."""
        document = self._package.Document()
        document.add_unsigned(_ROW, row)
        document.add_text(_TEXT, _plain(f"{passage.title}\n{passage.text}"))
        self._writer.add_document(document)

    def finish(self) -> None:
        """Completes the index.

        Raises:
            OSError: Its files cannot be written.
        """
        try:
            self._writer.commit()
            self._writer.wait_merging_threads()
        except ValueError as error:  # whatever it is
            raise OSError(str(error)) from error


class LexicalIndex:
    """Searches an index."""

    def __init__(self, folder: Path) -> None:
        """Opens an index.

        Raises:
            RetrievalError: The package is not installed, or the index is damaged.
        """
        self._package = tantivy()
        try:
            index = self._package.Index(_schema(self._package), path=str(folder))
            index.config_reader("manual")  # nobody changes it, so nothing has to watch it
            index.register_tokenizer(_ANALYZER, _analyzer(self._package))
            self._schema, self._searcher = index.schema, index.searcher()
        except (OSError, ValueError) as error:
            raise RetrievalError(f"{folder}: the index is damaged, remove it: {error}") from error
        self._words = _analyzer(self._package)

    def __len__(self) -> int:
        return int(self._searcher.num_docs)

    def search(self, query: str, k: int) -> list[tuple[int, float]]:
        """Returns the rows of the best passages that have a word of the query, with their BM25 scores, the best first."""
        query_class, occur = self._package.Query, self._package.Occur.Should
        terms = list(dict.fromkeys(self._words.analyze(_plain_query(query))))[:_MOST_TERMS]
        if not terms:
            return []
        parts = [(occur, query_class.term_query(self._schema, _TEXT, term, _FREQUENCIES)) for term in terms]
        hits = self._searcher.search(query_class.boolean_query(parts), k + _MORE_HITS, count=False).hits
        rows = self._searcher.fast_field_values(_ROW, [address for _, address in hits])
        found = [(int(row), float(score)) for row, (score, _) in zip(rows, hits, strict=True)]
        return sorted(found, key=lambda one: (-one[1], one[0]))[:k]


def _plain(text: str) -> str:
    """Returns a text in which equal characters are written in the same way."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _plain_query(query: str) -> str:
    """Returns a query as `_plain` does, but in a time and of a length that are bounded: it may be anybody's."""
    query = query[:_MOST_READ]
    if query.isascii():
        return query
    room = _MOST_WRITTEN * len(query) + _ALWAYS_WRITTEN
    written: list[str] = []
    for piece in _PIECE.findall(query):
        written.append(_plain(piece)[:room])
        room -= len(written[-1])
        if not room:
            break
    return "".join(written)


def _schema(package: Any) -> Any:
    builder = package.SchemaBuilder()
    builder.add_text_field(_TEXT, tokenizer_name=_ANALYZER, index_option=_FREQUENCIES)
    builder.add_unsigned_field(_ROW, fast=True)
    return builder.build()


def _analyzer(package: Any) -> Any:
    kind = package.Filter
    builder = package.TextAnalyzerBuilder(package.Tokenizer.regex(_WORDS))
    for step in (kind.remove_long(_LONGEST_WORD), kind.lowercase(), kind.ascii_fold()):
        builder = builder.filter(step)
    return builder.build()
