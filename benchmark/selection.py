"""Selects items of a benchmark: by id, by domain, at random, up to a limit. Loads nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from benchmark.errors import BenchmarkError
from benchmark.items import Item


def select(
    items: Sequence[Item],
    *,
    ids: Sequence[str] = (),
    domains: Sequence[str] = (),
    shuffle_seed: int | None = None,
    limit: int | None = None,
) -> list[Item]:
    """Returns the items that match all conditions, in the benchmark's order unless shuffled.

    Args:
        items: All items.
        ids: Ids, or patterns with ``*``, ``?`` and ``[...]``; empty for all. An exact id wins over a pattern.
        domains: Domains, or patterns, in the same way.
        shuffle_seed: Shuffles; the same seed and items give the same order.
        limit: Returns at most this many, after shuffling.

    Raises:
        BenchmarkError: An id, a pattern or a domain matches no item, or no item matches all conditions; or the limit is
            below 1.
    """
    if limit is not None and limit < 1:
        raise BenchmarkError(f"--limit: {limit} is not at least 1")
    by_id = _fitting(ids, [item.id for item in items], "--item", "item")
    by_domain = _fitting(domains, [item.domain for item in items if item.domain], "--domain", "domain")
    chosen = [
        item for item in items if (not ids or item.id in by_id) and (not domains or (item.domain or "") in by_domain)
    ]
    if not chosen:
        raise BenchmarkError("--item and --domain: no item fits both")
    if shuffle_seed is not None:
        random.Random(shuffle_seed).shuffle(chosen)  # noqa: S311
    return chosen[:limit]


def _fitting(patterns: Iterable[str], names: Sequence[str], option: str, what: str) -> set[str]:
    known = set(names)
    fitting: set[str] = set()
    for pattern in patterns:
        found = {pattern} if pattern in known else {name for name in known if fnmatchcase(name, pattern)}
        if not found:
            close = get_close_matches(pattern, sorted(known), n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise BenchmarkError(f"{option}: no {what} of the benchmark is called {pattern!r}{hint}")
        fitting |= found
    return fitting
