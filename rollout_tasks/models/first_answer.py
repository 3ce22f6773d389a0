"""Whether a server answers a real request of its model: more than that it listens."""

from __future__ import annotations

from rollout_tasks.errors import RolloutFailure, UserError
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.base import ContextOverflow
from rollout_tasks.models.client import open_model
from rollout_tasks.models.pool.membership import id_of

FIRST_ANSWER_SECONDS = 120.0
"""A server's first reply may take long: it compiles then."""
_FIRST_WORDS = [{"role": "user", "content": "Say yes."}]


def unanswered(base_url: str, model: str) -> str:
    """Returns why a server does not answer, as a sentence; empty if it does.

    Args:
        base_url: Its endpoint.
        model: The name of the model that it serves.
    """
    config = ModelConfig(name=model, max_completion_tokens=16, max_retries=1, timeout=FIRST_ANSWER_SECONDS)
    try:
        open_model(config, session_id=f"attach/{id_of(base_url)}", base_url=base_url).complete(_FIRST_WORDS, ())
    except (RolloutFailure, UserError, ContextOverflow) as failure:
        return str(failure)
    except Exception as error:  # noqa: BLE001 - whoever waits for the answer is to end
        return f"{id_of(base_url)} cannot be asked: {error!r}"
    return ""
