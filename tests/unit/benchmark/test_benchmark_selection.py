"""Which items are taken of a benchmark."""

from __future__ import annotations

from typing import Any

import pytest

from benchmark.errors import BenchmarkError
from benchmark.items import Item
from benchmark.selection import select

ITEMS = [
    Item("chrome-1", "?", metadata={"domain": "chrome"}),
    Item("chrome-2", "?", metadata={"domain": "chrome"}),
    Item("gimp-1", "?", metadata={"domain": "gimp"}),
    Item("a[1]", "?"),
    Item("a1", "?"),
]


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({}, ["chrome-1", "chrome-2", "gimp-1", "a[1]", "a1"]),
        ({"limit": 2}, ["chrome-1", "chrome-2"]),
        ({"limit": 99}, ["chrome-1", "chrome-2", "gimp-1", "a[1]", "a1"]),
        ({"ids": ["gimp-1", "chrome-1"]}, ["chrome-1", "gimp-1"]),
        ({"ids": ["chrome-*"]}, ["chrome-1", "chrome-2"]),
        ({"ids": ["*-1", "chrome-?"]}, ["chrome-1", "chrome-2", "gimp-1"]),
        ({"ids": ["a[1]"]}, ["a[1]"]),
        ({"ids": ["a[0-9]"]}, ["a1"]),
        ({"domains": ["gimp"]}, ["gimp-1"]),
        ({"domains": ["*"]}, ["chrome-1", "chrome-2", "gimp-1"]),
        ({"domains": ["chrome"], "ids": ["*-2"]}, ["chrome-2"]),
    ],
)
def test_what_fits_is_taken_in_the_benchmarks_order(options: dict[str, Any], ids: list[str]) -> None:
    assert [item.id for item in select(ITEMS, **options)] == ids


def test_a_seed_is_an_order_and_the_limit_comes_after_it() -> None:
    orders = {seed: [item.id for item in select(ITEMS, shuffle_seed=seed)] for seed in range(20)}

    assert all(sorted(order) == sorted(item.id for item in ITEMS) for order in orders.values())
    assert len({tuple(order) for order in orders.values()}) > 5
    assert [item.id for item in select(ITEMS, shuffle_seed=3, limit=2)] == orders[3][:2]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ids": ["chrome-11"]}, "--item: no item of the benchmark is called 'chrome-11'; did you mean chrome-1?"),
        ({"ids": ["chrome-1", "z*"]}, "--item: no item of the benchmark is called 'z*'"),
        ({"domains": ["gmip"]}, "--domain: no domain of the benchmark is called 'gmip'; did you mean gimp?"),
        ({"domains": ["gimp"], "ids": ["chrome-1"]}, "--item and --domain: no item fits both"),
        ({"limit": 0}, "--limit: 0 is not at least 1"),
        ({"limit": -1}, "--limit: -1 is not at least 1"),
    ],
)
def test_what_fits_nothing_is_named(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BenchmarkError) as caught:
        select(ITEMS, **options)

    assert str(caught.value) == sentence
