"""A pool at one moment, read from the script's words: each field where it belongs, each time in seconds."""

from __future__ import annotations

from typing import Any

import pytest

from vm_pool.snapshot import parse_events, parse_status
from vm_pool.states import VM, Endpoint, Event, PoolStatus, VMState, Waiter

FREE = {
    "state": "free",
    "host": "box",
    "endpoint": '{"address": "10.0.0.1", "ports": {"control": 5000}}',
    "needs_reset": "1",
    "fence": "17",
    "since": "1700000001500000",
}
BARE = {"state": "free", "host": "", "endpoint": "", "needs_reset": "0", "fence": "1", "since": "0"}


def row(vm_id: str, fields: dict[str, str], *, heard: str = "1") -> list[Any]:
    return [vm_id, heard, *[word for pair in fields.items() for word in pair]]


def status(*vms: list[Any], waiters: tuple[str, ...] = (), counters: tuple[str, ...] = ()) -> PoolStatus:
    return parse_status("p", [1700000000250000, list(vms), list(waiters), list(counters), ["not", "read"]])


def test_a_vm_that_has_been_through_everything() -> None:
    fields = {
        **FREE,
        "state": "leased",
        "drained": "1",
        "grants": "3",
        "resets": "4",
        "failures": "5",
        "error": "a sentence",
        "retry_at": "1700000002750000",
        "holder": "rollout 7#0",
        "deadline": "1700000003125000",
    }
    assert status(row("box-0", fields)).vms == (
        VM(
            vm_id="box-0",
            state=VMState.LEASED,
            host="box",
            host_heard=True,
            endpoint=Endpoint("10.0.0.1", {"control": 5000}),
            needs_reset=True,
            fence=17,
            since=1700000001.5,
            drained=True,
            grants=3,
            resets=4,
            failures=5,
            error="a sentence",
            retry_at=1700000002.75,
            holder="rollout 7#0",
            deadline=1700000003.125,
        ),
    )


def test_what_a_vm_never_had_is_nothing() -> None:
    assert status(row("box-0", BARE, heard="0")).vms == (
        VM(
            vm_id="box-0",
            state=VMState.FREE,
            host="",
            host_heard=False,
            endpoint=Endpoint("", {}),
            needs_reset=False,
            fence=1,
            since=0.0,
            drained=False,
            grants=0,
            resets=0,
            failures=0,
            error="",
            retry_at=None,
            holder="",
            deadline=None,
        ),
    )


def test_who_had_a_vm_before_does_not_have_it_now() -> None:
    (vm,) = status(row("box-0", {**FREE, "holder": "earlier", "deadline": "5"})).vms
    assert (vm.holder, vm.deadline) == ("", None)


def test_vms_come_in_the_order_people_count_in() -> None:
    names = ["b-2", "b-10", "a-1", "b-9", "c", "b-x", "b"]
    assert [vm.vm_id for vm in status(*[row(name, FREE) for name in names]).vms] == [
        "a-1", "b", "b-2", "b-9", "b-10", "b-x", "c"
    ]  # fmt: skip


def test_waiters_have_the_place_they_come_in() -> None:
    seen = status(
        waiters=(
            "t1", "60000000 3600000000 -5 1700000004500000 a holder with spaces\nmachine:1:2",
            "t2", "30000000 7200000000 10 1700000005250000 other",
        )
    )  # fmt: skip
    assert seen.waiters == (
        Waiter("t1", "a holder with spaces", -5, 1, 1700000004.5),
        Waiter("t2", "other", 10, 2, 1700000005.25),
    )
    assert (seen.name, seen.at, seen.vms) == ("p", 1700000000.25, ())


def test_what_nobody_counts_follows_from_what_is_counted() -> None:
    leased = {**FREE, "state": "leased", "holder": "me", "deadline": "5"}
    seen = status(
        row("a-0", {**FREE, "grants": "7"}),
        row("a-1", {**leased, "grants": "20"}),
        row("a-2", {**leased, "grants": "1"}),
        row("a-3", BARE),
        row("a-4", FREE),
        counters=(
            "granted", "100", "expired", "3", "last_ticket", "999",
            "revoked", "4", "returned", "6", "reset_done", "8",
        ),
    )  # fmt: skip
    assert seen.counters == {
        "granted": 128,
        "expired": 3,
        "revoked": 4,
        "returned": 6,
        "reset_done": 8,
        "released": 128 - 2 - 13,
    }
    assert status().counters == {"granted": 0, "released": 0}


def test_a_word_too_few_is_noticed() -> None:
    with pytest.raises(ValueError, match="zip"):
        status(counters=("granted", "1", "expired"))


def test_events_say_what_when_and_whose() -> None:
    (event,) = parse_events([("1700000000250-3", ["e", "granted box-0 17 a holder with spaces"])])
    assert event == Event("1700000000250-3", "granted", "box-0", 17, "a holder with spaces")
    assert event.at == 1700000000.25


def test_the_sentence_counts_states_and_names_silent_hosts() -> None:
    leased = {**FREE, "state": "leased", "holder": "me", "deadline": "5"}
    assert status().sentence() == "no VMs"
    assert status(row("a-0", FREE), row("a-1", leased), row("a-2", FREE)).sentence() == "2 free, 1 leased"
    silent = status(
        row("a-0", {**FREE, "host": "west"}, heard="0"),
        row("a-1", {**FREE, "host": "east"}, heard="0"),
        row("a-2", {**FREE, "host": "east"}, heard="0"),
        row("a-3", FREE),
    )
    assert silent.sentence() == "1 free, 3 silent (no sign of life from east, west)"
    assert silent.counts() == {"free": 1, "silent": 3}


@pytest.mark.parametrize("state", list(VMState))
def test_a_vm_that_needs_its_silent_host_is_counted_as_silent(state: VMState) -> None:
    leased = {"holder": "me", "deadline": "5"}
    seen = status(row("a-0", {**FREE, **leased, "state": state.value}, heard="0"))

    needs_it = state not in (VMState.LEASED, VMState.ERROR, VMState.STOPPED)
    assert seen.counts() == {"silent" if needs_it else state.value: 1}
    assert seen.sentence() == f"1 {'silent' if needs_it else state.value} (no sign of life from box)"
