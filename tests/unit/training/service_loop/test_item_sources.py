"""Where the service loop's items come from: each is offered once, also after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from benchmark.items import Item, LoadedItems, load_items
from rollout_tasks.training.service_loop.item_sources import (
    FileSource,
    ItemSource,
    OfferedItem,
    RefusedItem,
    StreamSource,
)


def keys_of(source: ItemSource, begun: set[str], most: int = 20) -> list[str]:
    """The keys of what a loop would begin, until there is nothing more."""
    found: list[str] = []
    while len(found) < most and (offered := source.next(begun, begun)) is not None:
        begun.add(offered.key)
        found.append(offered.key)
    return found


def loaded(*names: str) -> LoadedItems:
    return LoadedItems("items", "items.jsonl", tuple(Item(name, "?") for name in names))


def test_each_item_is_offered_as_often_as_there_are_epochs() -> None:
    source = FileSource(lambda: loaded("a", "b"), epochs=2)

    assert keys_of(source, set()) == ["0:a", "0:b", "1:a", "1:b"]
    assert source.next({"0:a", "0:b", "1:a", "1:b"}, ()) is None
    assert source.idle == "every item was rolled out 2 times"


def test_what_a_stream_offered_before_is_of_no_epoch() -> None:
    source = FileSource(lambda: loaded("a"), epochs=1, seed=None)

    assert keys_of(source, {"1764372000000-0"}) == ["0:a"]


def test_without_a_number_of_epochs_there_is_always_one_more() -> None:
    assert keys_of(FileSource(lambda: loaded("a", "b")), set(), most=5) == ["0:a", "0:b", "1:a", "1:b", "2:a"]


def test_a_loop_that_starts_again_goes_on_in_its_epoch() -> None:
    assert keys_of(FileSource(lambda: loaded("a", "b", "c"), epochs=2), {"0:a", "0:b", "0:c", "1:b"}) == ["1:a", "1:c"]


def test_an_item_that_was_added_between_is_not_rolled_out_for_epochs_that_are_past() -> None:
    begun = {f"{epoch}:{name}" for epoch in range(50) for name in "ab"}

    assert keys_of(FileSource(lambda: loaded("a", "b", "new")), begun, most=4) == ["49:new", "50:a", "50:b", "50:new"]


def test_items_that_are_added_are_found(tmp_path: Path) -> None:
    file = tmp_path / "items.jsonl"
    file.write_text('{"id": "a", "question": "?"}\n')
    source, begun = FileSource(lambda: load_items(file), epochs=1, look_seconds=0), set[str]()

    assert keys_of(source, begun) == ["0:a"]
    file.write_text('{"id": "b", "question": "?"}\n')

    assert keys_of(source, begun) == ["0:b"]


def test_each_epoch_has_an_order_of_its_own_and_the_same_after_a_restart() -> None:
    names = [f"item-{number}" for number in range(20)]

    def orders() -> list[list[str]]:
        every = keys_of(FileSource(lambda: loaded(*names), epochs=2, seed=7), set(), most=40)
        return [[key.partition(":")[2] for key in half] for half in (every[:20], every[20:])]

    first, second = orders()
    assert sorted(first) == sorted(second) == sorted(names)
    assert first != second
    assert orders() == [first, second]


@pytest.fixture(name="client")
def _client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


def in_stream(client: redis.Redis, **values: object) -> str:
    return str(client.xadd("todo", {"item": json.dumps(values)}))


def test_each_entry_of_a_stream_is_offered_once(client: redis.Redis) -> None:
    source = StreamSource(client, "todo", "night", lambda _item: "")
    assert source.next(set(), ()) is None
    first, second = (in_stream(client, id=name, question="?") for name in ("a", "b"))

    offered = [source.next(set(), ()), source.next(set(), ()), source.next(set(), ())]

    assert offered == [OfferedItem(first, Item("a", "?")), OfferedItem(second, Item("b", "?")), None]
    assert source.idle == "the stream todo has no new entry"


def test_a_loop_that_starts_again_gets_the_entries_whose_groups_have_not_ended(client: redis.Redis) -> None:
    names = [in_stream(client, id=name, question="?") for name in "abcd"]
    source = StreamSource(client, "todo", "night", lambda _item: "")
    for _ in range(3):
        source.next(set(), ())
    source.end(names[0])

    again = StreamSource(client, "todo", "night", lambda _item: "")

    assert keys_of(again, {names[1]}) == [names[2], names[3]], "the second is under way, as the journal knows"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"task": "x"}, "has no field item"),
        ({"item": "{"}, "JSON"),
        ({"item": "[1]"}, "must be an object"),
        ({"item": '{"id": "a"}'}, "question is missing"),
        ({"item": '{"id": "../a", "question": "?"}'}, "has '.' or '..' between slashes"),
        ({"item": '{"id": "a", "question": "?", "env_config": 3}'}, "env_config must be an object"),
        ({"item": "[" * 100_000}, "entry"),
        ({"item": '{"id": "bad", "question": "?"}'}, ": cannot be rolled out"),
    ],
)
def test_an_entry_that_is_no_item_is_told(client: redis.Redis, fields: dict[str, str], problem: str) -> None:
    key = str(client.xadd("todo", fields))  # type: ignore[arg-type]
    source = StreamSource(client, "todo", "night", lambda item: "cannot be rolled out" if item.id == "bad" else "")

    refused = source.next(set(), ())

    assert isinstance(refused, RefusedItem)
    assert refused.key == key
    assert problem in refused.problem
    source.end(key)
    assert StreamSource(client, "todo", "night", lambda _item: "").next(set(), ()) is None


def test_an_entry_that_ended_and_was_not_acknowledged_is_so_later(client: redis.Redis) -> None:
    name = in_stream(client, id="a", question="?")
    StreamSource(client, "todo", "night", lambda _item: "").next(set(), ())

    again = StreamSource(client, "todo", "night", lambda _item: "")

    assert again.next({name}, ()) is None
    assert client.xpending("todo", "rollouts-serve")["pending"] == 0  # type: ignore[index]


def test_an_entry_whose_check_fails_is_offered_later(client: redis.Redis) -> None:
    in_stream(client, id="a", question="?")
    problems: list[Exception] = [redis.ConnectionError("gone")]

    def check(_item: Item) -> str:
        if problems:
            raise problems.pop()
        return ""

    source = StreamSource(client, "todo", "night", check)
    with pytest.raises(redis.ConnectionError):
        source.next(set(), ())

    offered = source.next(set(), ())
    assert isinstance(offered, OfferedItem)


def test_two_loops_share_a_stream(client: redis.Redis) -> None:
    first, second = (in_stream(client, id=name, question="?") for name in ("a", "b"))
    one, other = (StreamSource(client, "todo", name, lambda _item: "") for name in ("one", "other"))

    offered = [one.next(set(), ()), other.next(set(), ()), one.next(set(), ()), other.next(set(), ())]

    assert [found and found.key for found in offered] == [first, second, None, None]


def test_a_stream_that_was_deleted_is_joined_again(client: redis.Redis) -> None:
    source = StreamSource(client, "todo", "night", lambda _item: "")
    source.next(set(), ())
    client.delete("todo")
    name = in_stream(client, id="a", question="?")

    offered = source.next(set(), ())

    assert offered is not None
    assert offered.key == name
