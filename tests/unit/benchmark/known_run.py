"""A small run in which everything occurs that a report can hold; what is written for it is known byte by byte."""

from __future__ import annotations

from pathlib import Path

from benchmark import RolloutResult
from benchmark.items import Item
from benchmark.report import BenchmarkInfo

KNOWN_REPORTS = Path(__file__).parent / "known_reports"
INFO = BenchmarkInfo(
    "sums | and more",
    "data/sums.jsonl",
    "A run of everything.",
    scripted=True,
    left_out=("item x: has no question", "item y: needs the internet"),
    doubted=("item 3/ü: its evaluator looks for what the guest lacks",),
    images=("core 1 (bookworm)", "full | 2"),
)
ROLLOUTS_PER_ITEM = 3
DOMAINS = ("chrome", "os", None, "vlc")

ITEMS = [
    Item(
        f"item {number}/ü",
        f"Line one of {number}\nand\u2028two {{[\"'\\",
        str(number),
        {"domain": domain} if (domain := DOMAINS[number % 4]) else {},
    )
    for number in range(24)
]


def results() -> list[RolloutResult]:
    """Three rollouts of most items, in no order that means anything."""
    made = [
        _result(item, number, index)
        for index in reversed(range(ROLLOUTS_PER_ITEM))
        for number, item in enumerate(ITEMS)
        if (number + index) % 11
    ]
    return made[5:] + made[:5]


def _result(item: Item, number: int, index: int) -> RolloutResult:
    which = (number * ROLLOUTS_PER_ITEM + index) % 9
    seconds, stages = 0.125 * number + index, {"setup": 0.25, "model": 0.5 * index}
    cost = 0.25 * number if number % 2 else None
    usage = {"cost": cost, "prompt_tokens": 10 * number, "completion_tokens": index, "attempts": 1 + number % 2}
    if which == 0:
        lost = {"failure_class": "vm_lost", "counted_as": "infrastructure", "error": f"VM {number} <is> gone"}
        return RolloutResult(item.id, index, "failed", seconds=seconds, **lost, **usage)  # type: ignore[arg-type]
    if which == 1:
        own = {"failure_class": "max_turns", "counted_as": "agent", "error": "50 turns"}
        return RolloutResult(item.id, index, "failed", "half an answer", seconds=seconds, **own, **usage)  # type: ignore[arg-type]
    if which == 2:
        return RolloutResult(item.id, index, "cancelled")
    if which == 3:
        where = {
            "task_code": ("cell", "worker")[number % 4 == 1],
            "attestation": ("attested", "unattested")[number % 2],
        }
        return RolloutResult(item.id, index, score=0.375 * index, stages=stages, seconds=seconds, **where, **usage)  # type: ignore[arg-type]
    answer = item.answer if which < 7 else f"no \ud800 {number}\x00"
    problem = f"call {number} | has no token ids of its output" if which == 8 else ""
    return RolloutResult(item.id, index, answer=answer, stages=stages, seconds=seconds, record_problem=problem, **usage)
