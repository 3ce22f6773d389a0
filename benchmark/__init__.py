"""What is asked of an agent and how its answers are scored.

Knows nothing of Celery, Redis or virtual machines: it can be used alone, on a laptop, on a finished run's results.
`import benchmark` is light; what scores (and needs numpy and scipy) is imported when first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmark.evaluation import Evaluation, RolloutResult, evaluate

__all__ = ["Evaluation", "RolloutResult", "evaluate"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from benchmark import evaluation

        return getattr(evaluation, name)
    raise AttributeError(f"module 'benchmark' has no attribute {name!r}")
