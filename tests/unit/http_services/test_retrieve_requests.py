"""Requests of Search-R1's protocol: what is read from them, and what is refused."""

from __future__ import annotations

import json
from itertools import chain

import pytest

from rollout_tasks.http_services.retrieve import (
    LONGEST_QUERY,
    MOST_CHARACTERS,
    MOST_QUERIES,
    Refused,
    Wanted,
    parts,
    read_request,
)

QUERY = "q" * 2_000


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"queries": ["a", ""], "topk": 5, "return_scores": True}, Wanted(["a", ""], 5, True)),
        ({"queries": ["a"]}, Wanted(["a"], 3, False)),
        ({"queries": [], "topk": 3, "return_scores": True}, Wanted([], 3, True)),
        ({"queries": ["a"], "topk": None}, Wanted(["a"], 3, False)),
        ({"queries": ["a"], "topk": 0, "model": "e5"}, Wanted(["a"], 3, False)),
    ],
)
def test_a_request_is_read(fields: object, wanted: Wanted) -> None:
    assert read_request(json.dumps(fields).encode()) == wanted


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"", 400, "the body is not JSON"),
        (b"\xff", 400, "the body is not JSON"),
        (b"[" * 100_000, 400, "the body is not JSON"),
        (b"[]", 400, "the body must be an object"),
        (b"{}", 422, "queries must be a list of texts"),
        (b'{"queries": "a"}', 422, "queries must be a list of texts"),
        (b'{"queries": ["a", 1]}', 422, "queries must be a list of texts"),
        (json.dumps({"queries": ["a"] * (MOST_QUERIES + 1)}).encode(), 422, "at most 4,096 in one request, got 4,097"),
        (json.dumps({"queries": ["a" * (LONGEST_QUERY + 1)]}).encode(), 422, "at most 20,000 characters, got 20,001"),
        (b'{"queries": ["a"], "topk": 101}', 422, "topk must be a whole number from 1 to 100"),
        (b'{"queries": ["a"], "topk": true}', 422, "topk must be a whole number from 1 to 100"),
        (b'{"queries": ["a"], "topk": 1.5}', 422, "topk must be a whole number from 1 to 100"),
        (b'{"queries": ["a"], "topk": NaN}', 400, "the body is not JSON"),
        (b'{"queries": ["a"], "return_scores": 1}', 422, "return_scores must be true or false"),
    ],
)
def test_what_is_no_request_is_refused(body: bytes, status: int, sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        read_request(body)

    assert refused.value.status == status
    assert sentence in str(refused.value)


@pytest.mark.parametrize("more", ["[],", "{},", "1,", '"",'])
def test_a_body_that_takes_long_to_parse_is_refused_before(more: str) -> None:
    with pytest.raises(Refused, match="at most 100,000 commas and opening brackets, got"):
        read_request(f'{{"queries": [{more * 100_000}""]}}'.encode())


def test_the_queries_of_a_request_are_bounded_together() -> None:
    whole = [QUERY] * (MOST_CHARACTERS // len(QUERY))

    assert read_request(json.dumps({"queries": whole}).encode()).queries == whole
    with pytest.raises(Refused, match="may have at most 400,000 characters, got 400,001"):
        read_request(json.dumps({"queries": [*whole, "a"]}).encode())


@pytest.mark.parametrize(
    "queries", [[], [""], ["a"] * 1_000, [QUERY] * 20, ["a" * LONGEST_QUERY, "", "b"], ["", "a" * LONGEST_QUERY, "c"]]
)
def test_queries_are_searched_for_in_parts(queries: list[str]) -> None:
    found = list(parts(queries))

    assert list(chain(*found)) == queries
    assert all(part for part in found)
    assert all(len(part) <= 256 and (len(part) == 1 or len("".join(part)) <= 10_000) for part in found)
