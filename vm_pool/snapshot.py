"""Parses the replies of status.lua and the event stream into the types of `states`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vm_pool.lease import endpoint_from_json
from vm_pool.states import VM, Event, PoolStatus, VMState, Waiter


def parse_status(name: str, reply: Sequence[Any]) -> PoolStatus:
    """Returns a pool's status from status.lua's reply."""
    now, vms, waiters, counters, _hosts = reply
    rows = {row[0]: (row, dict(_pairs(row[2:]))) for row in vms}
    return PoolStatus(
        name=name,
        at=now / 1_000_000,
        vms=tuple(sorted((_vm(*row) for row in rows.values()), key=_natural)),
        waiters=tuple(_waiter(place, *pair) for place, pair in enumerate(_pairs(waiters), start=1)),
        counters=_totals(counters, [fields for _row, fields in rows.values()]),
    )


def _totals(counters: Sequence[str], vms: Sequence[dict[str, str]]) -> dict[str, int]:
    """Returns all counters, with those that scripts need not count: grants are counted on the VMs, and a lease that has
    ended, but not in another way, was released.
    """
    totals = {key: int(value) for key, value in _pairs(counters) if key != "last_ticket"}
    granted = totals.get("granted", 0) + sum(int(vm.get("grants", 0)) for vm in vms)
    leased = sum(vm["state"] == VMState.LEASED for vm in vms)
    otherwise = sum(totals.get(event, 0) for event in ("expired", "revoked", "returned"))
    return {**totals, "granted": granted, "released": granted - leased - otherwise}


def parse_events(reply: Sequence[tuple[str, Sequence[str]]]) -> list[Event]:
    """Returns events from XRANGE's reply."""
    return [_event(event_id, dict(_pairs(fields))) for event_id, fields in reply]


def _event(event_id: str, fields: dict[str, str]) -> Event:
    event, vm_id, fence, holder = fields["e"].split(" ", 3)
    return Event(event_id, event, vm_id, int(fence), holder)


def _vm(row: Sequence[Any], fields: dict[str, str]) -> VM:
    vm_id, heard = row[:2]
    state = VMState(fields["state"])
    leased = state is VMState.LEASED
    return VM(
        vm_id=vm_id,
        state=state,
        host=fields["host"],
        host_heard=heard == "1",
        endpoint=endpoint_from_json(fields["endpoint"]),
        needs_reset=fields["needs_reset"] == "1",
        fence=int(fields["fence"]),
        since=int(fields["since"]) / 1_000_000,
        drained="drained" in fields,
        grants=int(fields.get("grants", 0)),
        resets=int(fields.get("resets", 0)),
        failures=int(fields.get("failures", 0)),
        error=fields.get("error", ""),
        retry_at=int(fields["retry_at"]) / 1_000_000 if "retry_at" in fields else None,
        holder=fields["holder"] if leased else "",
        deadline=int(fields["deadline"]) / 1_000_000 if leased else None,
    )


def _waiter(place: int, token: str, request: str) -> Waiter:
    _ttl, _max_age, priority, arrival, holder = request.partition("\n")[0].split(" ", 4)
    return Waiter(token, holder, int(priority), place, int(arrival) / 1_000_000)


def _pairs(flat: Sequence[str]) -> Iterator[tuple[str, str]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _natural(vm: VM) -> tuple[str, int, str]:
    stem, _, number = vm.vm_id.rpartition("-")
    return (stem, int(number), "") if number.isdigit() else (vm.vm_id, 0, "")
