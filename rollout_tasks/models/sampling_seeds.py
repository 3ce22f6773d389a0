"""The sampling seeds of an item's rollouts: one would make them all alike, where the endpoint honours it."""

from __future__ import annotations

from rollout_tasks.config import RunConfig
from rollout_tasks.model_config import ModelConfig


def with_later_seeds(config: RunConfig, later: int) -> RunConfig:
    """Returns a run's options with each seed as much higher as the rollout is later; models without a seed stay without one.

    Args:
        config: The run's options.
        later: The rollout's index among those of its item; or the first seed of its group.
    """
    if not later:
        return config
    roles = tuple(role.model_copy(update={"model": _later(role.model, later)}) for role in config.model_roles)
    return config.model_copy(update={"model": _later(config.model, later), "model_roles": roles})


def _later(model: ModelConfig, later: int) -> ModelConfig:
    return model if model.seed is None else model.model_copy(update={"seed": model.seed + later})
