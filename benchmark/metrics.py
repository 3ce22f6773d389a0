"""The registry of metrics: finds, by name, the function that compares an answer with the reference.

The built-in metrics are in `benchmark.text_metrics`, `benchmark.final_number` and `benchmark.judge`; other packages add
theirs as entry points of the group ``benchmark.metrics``, each a `Metric`. A metric is imported on first use.
"""

from __future__ import annotations

import difflib
import inspect
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import FunctionType
from typing import Any

from benchmark.errors import BenchmarkError, UnknownMetric
from benchmark.score import Metric as Metric
from benchmark.score import Score as Score

ENTRY_POINT_GROUP = "benchmark.metrics"
JUDGE_METRIC = "llm_judgement"

_BUILT_IN = {
    "exact_match": "benchmark.text_metrics:exact_match",
    "exact_match_normalized": "benchmark.text_metrics:exact_match_normalized",
    "f1_score": "benchmark.text_metrics:f1_score",
    "similarity": "benchmark.text_metrics:similarity",
    "contains_answer": "benchmark.text_metrics:contains_answer",
    "final_number": "benchmark.final_number:final_number",
    "numeric_match": "benchmark.text_metrics:numeric_match",
    JUDGE_METRIC: "benchmark.judge:llm_judgement",
    "bleu_score": "benchmark.text_metrics:bleu_score",
    "rouge_score": "benchmark.text_metrics:rouge_score",
}
_SHOWN_CHARACTERS = 60


def metric(name: str) -> Metric:
    """Returns the metric of this name.

    Raises:
        UnknownMetric: No metric has that name; the message suggests the nearest name and lists all.
        BenchmarkError: The metric is registered, but cannot be imported, or called with a prediction, an answer and an item.
    """
    if name in _BUILT_IN:
        return _load(EntryPoint(name, _BUILT_IN[name], ENTRY_POINT_GROUP))
    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        if entry_point.name == name:
            return _load(entry_point)
    known = metric_names()
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise UnknownMetric(f"unknown metric {name!r}{hint}; known are {', '.join(known)}")


def reference_problem(name: str, answer: str) -> str:
    """Returns why a built-in metric cannot use this reference, to put after the item's name; empty when it can."""
    if name not in _BUILT_IN or name == JUDGE_METRIC:
        return ""
    if not answer.strip():
        return f"has no answer that {name} could compare with"
    shown = answer if len(answer) <= _SHOWN_CHARACTERS else answer[: _SHOWN_CHARACTERS - 3] + "..."
    number = f"its answer {shown!r} holds no number, which {name} compares"
    if name == "final_number":
        from benchmark.final_number import last_number  # here, as few callers check references

        return "" if last_number(answer) else number
    if name == "numeric_match":
        from benchmark.text_metrics import numbers_in  # here, as few callers check references

        return "" if numbers_in(answer) else number
    if name == "contains_answer":
        from benchmark.text_metrics import simplify  # here, as few callers check references

        return (
            ""
            if simplify(answer)
            else f"its answer {shown!r} has no word for {name}, which leaves out a, an, the and punctuation"
        )
    return ""


def metric_names() -> list[str]:
    """Returns the names of all metrics: the built-in ones, then those of other packages, sorted."""
    added = {entry_point.name for entry_point in entry_points(group=ENTRY_POINT_GROUP)}
    return [*_BUILT_IN, *sorted(added - _BUILT_IN.keys())]


def _load(entry_point: EntryPoint) -> Metric:
    try:
        loaded: Metric = getattr(import_module(entry_point.module), entry_point.attr)
    except (ImportError, AttributeError) as error:
        raise BenchmarkError(f"metric {entry_point.name!r} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise BenchmarkError(
            f"metric {entry_point.name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if problem := _misfit(loaded):
        raise BenchmarkError(f"metric {entry_point.name!r} cannot be used: {entry_point.value} {problem}")
    return loaded


def _misfit(loaded: Any) -> str:
    """Returns why something cannot be called as a metric, to put after its name; empty when it can."""
    if not callable(loaded):
        return f"must be callable, got {type(loaded).__name__}"
    wanted = ("prediction", "answer", "item")
    decorated = hasattr(loaded, "__wrapped__")
    if decorated and (hasattr(loaded, "__signature__") or type(loaded) is not FunctionType):
        return ""  # the signature is that of what the decorator calls, with arguments that it may supply itself
    try:
        signature = inspect.signature(loaded, follow_wrapped=False)
    except (ValueError, TypeError):  # of a built-in, which nobody can look into
        return ""
    try:
        signature.bind(*wanted)
    except TypeError:
        shown = signature.replace(
            parameters=[one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()],
            return_annotation=inspect.Signature.empty,
        )
        return f"must take ({', '.join(wanted)}), but takes {shown}"
    return ""
