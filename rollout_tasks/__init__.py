"""The Celery application of the rollout pipeline: `celery -A rollout_tasks worker`."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    """Loads the Celery application when it is asked for, so that importing a part of the package stays cheap."""
    if name in {"app", "celery"}:
        from rollout_tasks.errors import WRONG_INPUT, UserError

        try:
            from rollout_tasks.app import app
            from rollout_tasks.worker import bootsteps
        except UserError as error:  # this is how Celery's commands come here: they would show a traceback
            sys.stderr.write(f"error: {error}\n")
            raise SystemExit(WRONG_INPUT) from None
        bootsteps.install(app)
        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
