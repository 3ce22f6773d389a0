"""Rules that derive what the scripted model says: from worked answers, wrong on purpose, as a judge, or of a page."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from benchmark.items import WORKED_ANSWER, Item
from benchmark.judge import CORRECT, INCORRECT, JUDGE_MARK
from benchmark.text_metrics import NUMERIC_TOLERANCE, normalize
from rollout_tasks.page_summary import SUMMARY_MARK, read_summary_question

_SUMMARY_LINES = 5
_ANNOTATION = re.compile(r"<<([^<>=]+)=[^<>]*>>")
_RESULT = re.compile(r"^####\s*(\S.*)$", re.MULTILINE)
_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")
_JUDGED = re.compile(
    r"^Reference answer:\n(?P<reference>.*?)^Answer to grade:\n(?P<graded>.*)", re.MULTILINE | re.DOTALL
)


def worked_example(item: Item) -> list[dict[str, Any]] | None:
    """Returns the script of a GSM8K item: its calculator annotations (``<<48/2=24>>``) in one call, then its result.

    Returns:
        The turns, or None when the answer does not end with a ``#### result`` line.
    """
    worked = item.metadata.get(WORKED_ANSWER, item.answer)
    results = _RESULT.findall(worked) if isinstance(worked, str) else []
    if not results:
        return None
    final = {"text": f"The answer is {results[-1].strip()}."}
    expressions = [expression.strip() for expression in _ANNOTATION.findall(worked)]
    if not expressions:
        return [final]
    return [{"tool_calls": [{"name": "calculator", "arguments": {"expressions": expressions}}]}, final]


def choose(item_ids: Iterable[str], count: int, seed: int) -> list[str]:
    """Picks `count` of the ids, the same ones for the same seed whatever their order."""
    return sorted(item_ids, key=lambda item_id: hashlib.sha256(f"{seed}:{item_id}".encode()).digest())[:count]


def wrong_text(answer: str) -> str:
    """Returns a final text that no metric accepts for `answer`: the smallest positive number not near any of its own."""
    near = {round(number) for number in _numbers(answer)}
    return str(next(number for number in itertools.count(1) if number not in near))


def is_judge_request(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the request asks for a verdict instead of a turn."""
    first = messages[0] if messages else {}
    return first.get("role") == "system" and text_of(first).startswith(JUDGE_MARK)


def verdict(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns ``Correct`` or ``Incorrect``: compares the last number with the reference's last, else the words.

    Returns:
        None when the request lacks the fields ``Reference answer:`` and ``Answer to grade:``.
    """
    fields = _JUDGED.search(text_of(messages[-1]))
    if fields is None:
        return None
    reference, graded = fields["reference"], fields["graded"]
    expected = _numbers(reference)
    if expected:
        given = _numbers(graded)
        correct = bool(given) and abs(given[-1] - expected[-1]) <= NUMERIC_TOLERANCE
    else:
        correct = f" {normalize(reference)} " in f" {normalize(graded)} "
    return CORRECT if correct else INCORRECT


def is_summary_request(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the request asks what a page says toward a goal."""
    first = messages[0] if messages else {}
    return first.get("role") == "system" and text_of(first).startswith(SUMMARY_MARK)


def summary(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns the lines of a page that share most words with the goal, in the page's order.

    Returns:
        None when the request lacks the fields ``Goal:`` and ``Page:``.
    """
    fields = read_summary_question(text_of(messages[-1]))
    if fields is None:
        return None
    goal, page = fields
    wanted = set(normalize(goal).split())
    lines = [line.strip() for line in page.splitlines() if line.strip()]
    shared = [len(wanted & set(normalize(line).split())) for line in lines]
    best = sorted(range(len(lines)), key=lambda number: (-shared[number], number))[:_SUMMARY_LINES]
    return "\n".join(lines[number] for number in sorted(best) if shared[number]) or "The page says nothing of that."


def text_of(message: Mapping[str, Any]) -> str:
    """Returns the text of a message, whose content is a string or a list of parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _numbers(text: str) -> list[Decimal]:
    return [Decimal(number.replace(",", "")) for number in _NUMBER.findall(text)]
