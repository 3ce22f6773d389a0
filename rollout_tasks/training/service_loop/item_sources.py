"""Where the service loop's items come from: a file or folder that may change, or a Redis stream."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import redis

from benchmark.errors import BenchmarkError
from benchmark.items import Item, LoadedItems, parse_item

_STREAM_GROUP = "rollouts-serve"
_LONGEST_ITEM = 1 << 20
"""Characters of an item in a stream."""


@dataclass(frozen=True, slots=True)
class OfferedItem:
    """An item to be rolled out, once."""

    key: str
    """No two offers have the same; the same offer has the same after a restart."""
    item: Item


@dataclass(frozen=True, slots=True)
class RefusedItem:
    """Something that is no item that can be rolled out."""

    key: str
    problem: str
    """A sentence."""


class ItemSource(Protocol):
    """Offers items one by one."""

    def next(self, begun: Collection[str], under_way: Collection[str]) -> OfferedItem | RefusedItem | None:
        """Returns what to roll out next; None when there is nothing now.

        Args:
            begun: The keys of what was begun already.
            under_way: The keys of that of it which has not ended.

        Raises:
            BenchmarkError: The data cannot be read.
            UserError: The items cannot be rolled out.
            redis.RedisError: The stream cannot be read.
        """

    def end(self, key: str) -> None:
        """Says that an item was rolled out or refused: it is not offered again."""

    @property
    def idle(self) -> str:
        """Why there is nothing now, as a clause."""


class FileSource:
    """The items of a file or folder, again and again; what was added or removed meanwhile counts from the next look."""

    def __init__(
        self,
        load: Callable[[], LoadedItems],
        *,
        epochs: int | None = None,
        seed: int | None = None,
        look_seconds: float = 30.0,
    ) -> None:
        """Reads nothing yet.

        Args:
            load: Reads and checks the items.
            epochs: How often each item is rolled out; None for as long as the loop runs.
            seed: Each epoch has an order of its own that this decides; None for the order of the data.
            look_seconds: How often it looks for new items where it has none left.
        """
        self._load = load
        self._epochs = epochs
        self._seed = seed
        self._look_seconds = look_seconds
        self._next_look = 0.0
        self._epoch = -1
        self._left: Iterator[OfferedItem] = iter(())

    def next(self, begun: Collection[str], under_way: Collection[str]) -> OfferedItem | None:  # noqa: ARG002
        """See `ItemSource.next`."""
        offered = next((one for one in self._left if one.key not in begun), None)
        if offered is not None or time.monotonic() < self._next_look:
            return offered
        if self._epoch < 0:  # begun before, by this loop's last process
            self._epoch = max((int(key.partition(":")[0]) for key in begun if ":" in key), default=0)
        loaded = self._load()
        while loaded.items and (self._epochs is None or self._epoch < self._epochs):
            self._left = iter([one for one in self._of_epoch(loaded.items) if one.key not in begun])
            if (offered := next(self._left, None)) is not None:
                return offered
            if self._epoch + 1 == self._epochs:
                break  # items may still be added to the last epoch
            self._epoch += 1
        self._next_look = time.monotonic() + self._look_seconds
        return None

    def end(self, key: str) -> None:
        """Does nothing: the journal knows what was begun."""

    @property
    def idle(self) -> str:
        """See `ItemSource.idle`."""
        times = "" if self._epochs == 1 else f" {self._epochs} times"
        return f"every item was rolled out{times}" if self._epochs else "there are no items"

    def _of_epoch(self, items: Sequence[Item]) -> list[OfferedItem]:
        offered = [OfferedItem(f"{self._epoch}:{item.id}", item) for item in items]
        if self._seed is not None:
            random.Random(f"{self._seed}:{self._epoch}").shuffle(offered)  # noqa: S311
        return offered


class StreamSource:
    """The entries of a Redis stream, each with an item as JSON in its field ``item``; each is rolled out once.

    An entry stays pending until its group has ended, so that a loop that is started again gets it again.
    """

    def __init__(self, client: redis.Redis, stream: str, loop: str, check: Callable[[Item], str]) -> None:
        """Reads nothing yet.

        Args:
            client: A client that decodes replies.
            stream: The stream's key.
            loop: The loop's name: it gets its own entries again, and those of no other.
            check: Returns why an item cannot be rolled out, as a sentence; empty if it can be.
        """
        self._client = client
        self._stream = stream
        self._loop = loop
        self._check = check
        self._entry: tuple[str, dict[str, Any]] | None = None
        """One that was read and not offered yet."""
        self._joined = False
        self._read_pending_after = "0"
        """The last entry read of those that this loop got before it was started again; empty when all were read."""

    def next(self, begun: Collection[str], under_way: Collection[str]) -> OfferedItem | RefusedItem | None:
        """See `ItemSource.next`."""
        if self._entry is None:
            try:
                self._entry = self._next_entry(begun, under_way)
            except redis.ResponseError as error:
                if "NOGROUP" not in str(error):
                    raise
                self._joined, self._read_pending_after = False, "0"  # Redis has lost it
                self._entry = self._next_entry(begun, under_way)
        if self._entry is None:
            return None
        offered = self._offer(*self._entry)
        self._entry = None
        return offered

    def _next_entry(self, begun: Collection[str], under_way: Collection[str]) -> tuple[str, dict[str, Any]] | None:
        if not self._joined:
            self._join()
        while self._read_pending_after:
            entry = self._read(self._read_pending_after)
            if entry is None:
                self._read_pending_after = ""
                break
            self._read_pending_after = entry[0]
            if entry[0] not in begun:
                return entry
            if entry[0] not in under_way:
                self.end(entry[0])  # what a killed loop did not come to
        return self._read(">")

    def end(self, key: str) -> None:
        """See `ItemSource.end`."""
        self._client.xack(self._stream, _STREAM_GROUP, key)

    @property
    def idle(self) -> str:
        """See `ItemSource.idle`."""
        return f"the stream {self._stream} has no new entry"

    def _join(self) -> None:
        try:
            self._client.xgroup_create(self._stream, _STREAM_GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):  # it exists
                raise
        self._joined = True

    def _read(self, after: str) -> tuple[str, dict[str, Any]] | None:
        found: Any = self._client.xreadgroup(_STREAM_GROUP, self._loop, {self._stream: after}, count=1)
        entries = found[0][1] if found else []
        return (entries[0][0], entries[0][1] or {}) if entries else None

    def _offer(self, key: str, fields: dict[str, Any]) -> OfferedItem | RefusedItem:
        text = fields.get("item")
        if not isinstance(text, str) or len(text) > _LONGEST_ITEM:
            return RefusedItem(key, f"entry {key} of the stream {self._stream} has no field item, or a too long one")
        try:
            item = parse_item(text, f"entry {key} of the stream {self._stream}")
        except BenchmarkError as error:
            return RefusedItem(key, str(error))
        problem = self._check(item)
        return (
            RefusedItem(key, f"entry {key} of the stream {self._stream}: {problem}")
            if problem
            else OfferedItem(key, item)
        )
