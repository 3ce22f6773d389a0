"""The rollout pipeline: its Celery application (`celery -A rollout_tasks worker`) and its Python API."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollout_tasks.api import Run, RunResult, embedded_services, find, run, submit
    from rollout_tasks.config import RunConfig
    from rollout_tasks.errors import UserError
    from rollout_tasks.models.function_endpoint import FunctionEndpoint, serve_function
    from rollout_tasks.parallel_rollout import ParallelRolloutConfig, run_parallel_rollout
    from rollout_tasks.training.index import Index, Rule

__all__ = [
    "FunctionEndpoint",
    "Index",
    "ParallelRolloutConfig",
    "Rule",
    "Run",
    "RunConfig",
    "RunResult",
    "UserError",
    "embedded_services",
    "find",
    "run",
    "run_parallel_rollout",
    "serve_function",
    "submit",
]
_MODULES = {
    "FunctionEndpoint": "models.function_endpoint",
    "Index": "training.index",
    "ParallelRolloutConfig": "parallel_rollout",
    "Rule": "training.index",
    "RunConfig": "config",
    "UserError": "errors",
    "run_parallel_rollout": "parallel_rollout",
    "serve_function": "models.function_endpoint",
}
"""The module of each name; those not listed here are in `api`."""


def __getattr__(name: str) -> Any:
    """Imports a name when it is first used, so that importing a part of the package stays cheap."""
    if name in __all__:
        return getattr(import_module(f"rollout_tasks.{_MODULES.get(name, 'api')}"), name)
    if name in {"app", "celery"}:
        from rollout_tasks.errors import WRONG_INPUT, UserError  # here, because every module imports the package

        try:
            from rollout_tasks.app import app  # here, because it reads the environment, which may be wrong
            from rollout_tasks.worker import bootsteps
        except UserError as error:  # Celery's commands come here, and would show a traceback
            sys.stderr.write(f"error: {error}\n")
            raise SystemExit(WRONG_INPUT) from None
        bootsteps.install(app)
        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
