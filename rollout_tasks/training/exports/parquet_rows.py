"""Rows of a Parquet file, written in batches, so that what waits in memory is bounded. Knows no format's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollout_tasks.errors import UserError

BATCH_TOKENS = 1_000_000
"""Tokens in memory before they are written."""


def arrow() -> Any:
    """Returns the package pyarrow.

    Raises:
        UserError: It is not installed.
    """
    try:
        import pyarrow  # here, because it is optional
        import pyarrow.parquet
    except ImportError as error:
        raise UserError("Parquet files need the package pyarrow: uv pip install pyarrow") from error
    return pyarrow


def output_type() -> Any:
    """Returns the type of an `Output`."""
    types = arrow()
    names = [("call", types.int32()), ("start", types.int32()), ("end", types.int32())]
    return types.struct([*names, ("finish_reason", types.string())])


def span_type() -> Any:
    """Returns the type of a `VersionSpan`."""
    types = arrow()
    return types.struct([("version", types.string()), ("start", types.int32()), ("end", types.int32())])


class ParquetRows:
    """A file while it is written."""

    def __init__(self, path: Path, columns: Sequence[tuple[str, Any]], *, most: int, compression: str = "zstd") -> None:
        """Opens the file.

        Args:
            path: The file.
            columns: Its columns, each with its type of pyarrow.
            most: The sum of the rows' sizes that may wait in memory.
            compression: As pyarrow names it.

        Raises:
            OSError: It cannot be written.
            UserError: pyarrow is not installed.
        """
        self._arrow = arrow()
        self._schema = self._arrow.schema(columns)
        self._file = self._arrow.parquet.ParquetWriter(path, self._schema, compression=compression)
        self._tables: list[Any] = []
        self._waiting, self._most = 0, most

    def __enter__(self) -> ParquetRows:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._write()
        finally:
            self._file.close()

    def table(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """Returns rows as a table for `add`, and writes nothing.

        Args:
            rows: The rows' values, by the names of the columns.

        Raises:
            ArithmeticError: A number is too large for its column.
            TypeError: A value has another type than its column.
            ValueError: As these, or a text cannot be written.
        """
        return self._arrow.Table.from_pylist(rows, schema=self._schema)

    def add(self, table: Any, size: int) -> None:
        """Adds the rows of a table.

        Args:
            table: As `table` returns it.
            size: How much they count of what may wait: their tokens, or their bytes.
        """
        self._tables.append(table)
        self._waiting += size
        if self._waiting >= self._most:
            self._write()

    def _write(self) -> None:
        table = self._arrow.concat_tables(self._tables) if self._tables else self.table([])
        self._file.write_table(table.combine_chunks())
        self._tables, self._waiting = [], 0
