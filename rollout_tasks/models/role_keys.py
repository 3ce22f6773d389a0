"""The keys of further models, which come from the environment as the run's own does."""

from __future__ import annotations

from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.model_config import ModelConfig, ModelRole
from rollout_tasks.models.endpoint import endpoint_of
from rollout_tasks.settings import checked_key, settings

VARIABLE = "ROLLOUT_ROLE_KEYS"


def key_of_role(role: ModelRole, config: RunConfig) -> str | None:
    """Returns the key that a further model is asked with.

    The key of the run's own endpoint goes to no other: whoever runs that one could use it.

    Args:
        role: The further model.
        config: The run's options.

    Returns:
        The key; empty if none is sent; None if the run's own is, as both models have one endpoint.

    Raises:
        UserError: The variable is wrong, or the key cannot be sent in a header. No key is quoted.
    """
    keys = _keys()
    if role.role in keys:
        return keys[role.role]
    return None if endpoint_of(config.role_model(role)) == endpoint_of(config.model) else ""


def models_with_keys(config: RunConfig) -> list[tuple[ModelConfig, str | None]]:
    """Returns every model of a run with the key it is asked with, as `key_of_role` has it; the run's own first.

    Raises:
        UserError: As in `key_of_role`.
    """
    further = [(config.role_model(role), key_of_role(role, config)) for role in config.model_roles]
    return [(config.model, None), *further]


def _keys() -> dict[str, str]:
    """Returns the configured keys by role."""
    secret = settings().role_keys
    keys: dict[str, str] = {}
    for number, entry in enumerate("" if secret is None else secret.get_secret_value().split(), start=1):
        role, _, key = entry.partition(":")
        if not role or not key:
            raise UserError(f"{VARIABLE}: entry {number} must be ROLE:KEY, as in grounder:KEY")
        if "," in key:
            raise UserError(f"{VARIABLE}: entry {number} has a comma: there are blanks between entries")
        if role in keys:
            raise UserError(f"{VARIABLE}: entry {number} has the role of an earlier one")
        keys[role] = checked_key(key, VARIABLE)
    return keys
