"""A pool of VMs as people and programs see it: tables and JSON of its status, a table of its events."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rollout_tasks.cli.fitting_tables import Column, FittingTable
from vm_pool import VM, Event, PoolStatus, VMState

COLOURS = {
    VMState.INITIALIZING: "cyan",
    VMState.FREE: "green",
    VMState.LEASED: "blue",
    VMState.RESETTING: "yellow",
    VMState.ERROR: "red",
    VMState.STOPPED: "dim",
}
UNREACHABLE = {
    VMState.INITIALIZING: "is booting",
    VMState.RESETTING: "is being reset",
    VMState.ERROR: "is out of use",
    VMState.STOPPED: "has stopped",
}
"""States in which nobody can hold a VM."""
WAITERS_SHOWN = 20
TEXT_WIDTH = 30
"""To which holders and remarks may be folded on a narrow terminal."""
SHOWN_PORTS = ("control", "vnc")
"""Ports that the table shows; the others are in --json."""


def status_as_dict(status: PoolStatus) -> dict[str, Any]:
    """Returns the status for --json, without the tokens of the VMs' gates."""
    values = dataclasses.asdict(status)
    for vm in values["vms"]:
        del vm["endpoint"]["token"]
    return {**values, "counts": status.counts()}


def status_tables(status: PoolStatus) -> Group:
    """Returns a table of the VMs, one of the clients that wait, and totals."""
    purposes = [purpose for purpose in SHOWN_PORTS if any(purpose in vm.endpoint.ports for vm in status.vms)]
    columns = [
        Column("VM"),
        Column("state"),
        Column("for", right=True),
        Column("holder", folds_to=TEXT_WIDTH),
        Column("lease left", right=True, leaves=5),
        Column("grants", right=True, leaves=2),
        Column("resets", right=True, leaves=1),
        *(Column(purpose, leaves=3) for purpose in purposes),
        Column("", folds_to=TEXT_WIDTH),
    ]
    rows: list[Sequence[str | Text]] = [
        (
            vm.vm_id,
            Text(vm.state.value, style=COLOURS[vm.state]),
            _duration(status.at - vm.since),
            vm.holder,
            _duration(vm.deadline - status.at) if vm.deadline is not None else "",
            str(vm.grants),
            str(vm.resets),
            *(_address(vm, purpose) for purpose in purposes),
            "; ".join(_remarks(vm, status.at)),
        )
        for vm in status.vms
    ]
    title = f"pool {status.name}: {status.sentence()}"
    parts: list[FittingTable | Table | Text] = [FittingTable(columns, rows, title=title, title_justify="left")]
    if status.waiters:
        parts.append(_waiters_table(status))
    totals = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in sorted(status.counters.items()))
    parts.append(Text(totals, style="dim"))
    if any("vnc" in vm.endpoint.ports and vm.endpoint.gate for vm in status.vms):
        parts.append(Text("To see a desktop in a browser: rollouts pool connect VM", style="dim"))
    return Group(*parts)


def _address(vm: VM, purpose: str) -> str:
    """Returns where the VM is reached now; empty when nobody can hold it."""
    port = vm.endpoint.ports.get(purpose)
    address = f"[{vm.endpoint.address}]" if ":" in vm.endpoint.address else vm.endpoint.address
    return f"{address}:{port}" if port and vm.state not in UNREACHABLE else ""


def _remarks(vm: VM, now: float) -> list[str]:
    remarks = []
    if not vm.host_heard:
        remarks.append(f"no sign of life from {vm.host}")
    if vm.drained:
        remarks.append("drained")
    if vm.state is VMState.ERROR:
        retry = f"next try in {_duration(vm.retry_at - now)}" if vm.retry_at is not None else "until it is reset"
        remarks.append(f"{vm.error} ({retry})")
    return remarks


def _waiters_table(status: PoolStatus) -> Table:
    shown = status.waiters[:WAITERS_SHOWN]
    more = len(status.waiters) - len(shown)
    table = Table(
        title=f"waiting: {len(status.waiters)}", title_justify="left", caption=f"and {more} more" if more else None
    )
    for heading in ("place", "who", "priority", "for"):
        table.add_column(heading, justify="left" if heading == "who" else "right")
    for waiter in shown:
        cells = (str(waiter.place), Text(waiter.holder), str(waiter.priority), _duration(status.at - waiter.since))
        table.add_row(*cells)
    return table


def events_table(found: list[Event]) -> FittingTable:
    """Returns a table of events, in their order."""
    columns = [
        Column("at (UTC)"),
        Column("event"),
        Column("VM"),
        Column("fence", leaves=1),
        Column("who", folds_to=TEXT_WIDTH),
    ]
    rows = []
    for event in found:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(event.at))
        millis = f".{int(event.at * 1000) % 1000:03d}"
        rows.append((at + millis, event.event, event.vm_id, str(event.fence), event.holder))
    return FittingTable(columns, rows)


def _duration(seconds: float) -> str:
    whole = max(round(seconds), 0)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"
