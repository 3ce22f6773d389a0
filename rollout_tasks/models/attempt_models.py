"""The models of one attempt: the run's own and the further ones, each with its key, its count and its price."""

from __future__ import annotations

from rollout_tasks.config import RunConfig
from rollout_tasks.models.client import open_model
from rollout_tasks.models.prices import cost
from rollout_tasks.models.role_keys import key_of_role
from rollout_tasks.models.usage_meter import UsageMeter

ENVIRONMENT = "environment"
"""The role in which environments ask: the run's own model, unless the run has a further one of that name."""


def open_models(config: RunConfig, session_id: str, *, for_environment: bool = False) -> UsageMeter:
    """Returns the run's model, with the further ones as its roles. Connects to none yet.

    Each has a session of its own: the attempt's, followed by ``/`` and the role.

    Args:
        config: The run's configuration.
        session_id: The attempt's session.
        for_environment: Whether the environment asks a model, too, in the role `ENVIRONMENT`.

    Raises:
        UserError: A key cannot be sent in a header.
    """
    roles = {}
    for role in config.model_roles:
        model, key = config.role_model(role), key_of_role(role, config)
        roles[role.role] = UsageMeter(open_model(model, session_id=f"{session_id}/{role.role}", api_key=key))
    if for_environment and ENVIRONMENT not in roles:
        roles[ENVIRONMENT] = UsageMeter(open_model(config.model, session_id=f"{session_id}/{ENVIRONMENT}"))
    return UsageMeter(open_model(config.model, session_id=session_id), roles)


def cost_of(config: RunConfig, meter: UsageMeter) -> float | None:
    """Returns the dollars that an attempt's calls cost; None if a price is not known, or an endpoint counts no tokens."""
    further = {role.role for role in config.model_roles}
    own = sum((asked.usage for role, asked in meter.roles.items() if role not in further), meter.usage)
    costs = [cost(config.model, own)]
    for role in config.model_roles:
        used = meter.roles[role.role].usage
        costs.append(cost(role.model, used) if used.requests else 0.0)
    known = [part for part in costs if part is not None]
    return sum(known) if len(known) == len(costs) else None
