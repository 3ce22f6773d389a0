"""What can go wrong while passages are looked for."""

from __future__ import annotations

from rollout_tasks.errors import UserError


class RetrievalError(UserError):
    """A corpus, an index, or an endpoint for embeddings or passages cannot be used: one sentence naming what and where."""
