"""Benchmarks: the items that agents are asked, and the scoring of their answers.

Does not use Celery, Redis or virtual machines: it also works alone, on a laptop, on a finished run's results.
`import benchmark` is light; the scoring modules (which need numpy and scipy) are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmark.benchmark import Benchmark
    from benchmark.errors import BenchmarkError
    from benchmark.evaluation import Evaluation, RolloutResult, evaluate
    from benchmark.items import Item

__all__ = ["Benchmark", "BenchmarkError", "Evaluation", "Item", "RolloutResult", "evaluate"]
_MODULES = {"Benchmark": "benchmark", "BenchmarkError": "errors", "Item": "items"}
"""The module of each public name; names not listed here are in `evaluation`."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"benchmark.{_MODULES.get(name, 'evaluation')}"), name)
    raise AttributeError(f"module 'benchmark' has no attribute {name!r}")
