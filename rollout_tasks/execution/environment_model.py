"""The run's model as environments ask it: one question, one text."""

from __future__ import annotations

from rollout_tasks.agents.thinking import after_thinking
from rollout_tasks.environments.base import TextModel, TextTooLong
from rollout_tasks.models.attempt_models import ENVIRONMENT
from rollout_tasks.models.base import ContextOverflow, Model
from rollout_tasks.models.usage_meter import UsageMeter


class EnvironmentModel(TextModel):
    """Asks a model without tools and without a history."""

    def __init__(self, model: Model) -> None:
        """Asks nothing yet."""
        self._model = model

    def answer(self, instruction: str, text: str) -> str:
        """See `TextModel`."""
        messages = [{"role": "system", "content": instruction}, {"role": "user", "content": text}]
        try:
            reply = self._model.complete(messages, ())
        except ContextOverflow as error:
            raise TextTooLong(str(error)) from error
        return (after_thinking(reply.text) or "").strip()


def model_of_environment(meter: UsageMeter) -> EnvironmentModel | None:
    """Returns the model for an attempt's environment; None if that asks none."""
    return EnvironmentModel(meter.role(ENVIRONMENT)) if ENVIRONMENT in meter.roles else None
