"""An index of rollouts for trainers: which are trainable now, and which a trainer has taken. A database; see `index.Index`.

The runs' folders stay the truth: the index has their rewards and versions, and reads the traces from them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rollout_tasks.errors import UserError

if TYPE_CHECKING:
    from rollout_tasks.training.index.claims import Claim
    from rollout_tasks.training.index.index import Index
    from rollout_tasks.training.index.rule import Rule

__all__ = ["Claim", "Index", "Rule"]
_MODULES = {"Claim": "claims", "Index": "index", "Rule": "rule"}


def __getattr__(name: str) -> Any:
    """Imports a name when it is first used: SQLAlchemy is optional.

    Raises:
        UserError: SQLAlchemy is not installed.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "sqlalchemy":
            raise
        raise UserError("an index of rollouts needs the package SQLAlchemy: uv pip install sqlalchemy") from error
