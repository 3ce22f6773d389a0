"""Writes the profiles of a run's further models into its configuration, so that every worker, and a resume, has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollout_tasks import registry
from rollout_tasks.agents.profiles.profile import Profile
from rollout_tasks.agents.profiles.profile_file import checked_profile, is_file_name, read_profile
from rollout_tasks.agents.profiles.profile_texts import with_texts
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.model_config import ModelConfig, ModelRole
from rollout_tasks.runs.profile_options import with_requests_of

_OF_THE_RUN = ("timeout", "max_retries")
"""Options of a model that the run's own has for all."""


def with_role_profiles(config: RunConfig) -> RunConfig:
    """Returns a configuration whose further models have what their profiles say and they leave open. Harmless when repeated.

    Models that were filled in for another agent, as in a printed configuration, are left out.

    Raises:
        UserError: The agent asks no such model, lacks one, or a profile is wrong.
    """
    agent_roles = _asked_roles(config)
    roles = tuple(role for role in config.model_roles if role.role in agent_roles or not isinstance(role.profile, dict))
    if roles != config.model_roles:
        config = config.model_copy(update={"model_roles": roles})
    _check_roles(config, agent_roles)
    if not roles:
        return config
    filled = tuple(_with_profile(role, config.model) for role in roles)
    return config.model_copy(update={"model_roles": filled})


def _asked_roles(config: RunConfig) -> frozenset[str]:
    """Returns the further models that the agent asks; checks that the options fit it.

    Raises:
        UserError: They do not, or there is no such agent.
    """
    no_roles: frozenset[str] = frozenset()
    if config.agent is None or is_file_name(config.agent):
        return no_roles
    try:
        agent = registry.agent(config.agent)
    except UserError as error:
        raise UserError(f"--agent: {error}") from error
    if (check := getattr(agent, "check_config", None)) is not None:
        check(config)
    return frozenset(getattr(agent, "roles", no_roles))


def _check_roles(config: RunConfig, agent_roles: frozenset[str]) -> None:
    """Checks that the further models are those that the agent asks."""
    given = {role.role for role in config.model_roles}
    if unknown := sorted(given - agent_roles):
        has = (
            f"asks, besides --model: {', '.join(sorted(agent_roles))}"
            if agent_roles
            else "asks no other model than --model"
        )
        agent = f"--agent {config.agent}" if config.agent is not None else "the environment's own agent"
        raise UserError(f"--model-role {unknown[0]}: {agent} {has}")
    if missing := sorted(agent_roles - given):
        raise UserError(
            f"--agent {config.agent}: name its {missing[0]}, as in"
            f" --model-role {missing[0]}=MODEL,base-url=http://127.0.0.1:8000/v1,profile=uitars-1.5"
        )


def _with_profile(role: ModelRole, run_model: ModelConfig) -> ModelRole:
    named = f"--model-role {role.role}"
    try:
        profile = with_texts(_profile(role))
    except UserError as error:
        raise UserError(f"{named}: {error}") from error
    sampling = profile.sampling
    model = role.model
    if profile.computer_tool is not None and model.seed is not None:
        raise UserError(f"{named}: model-seed: its profile calls the model through an API that has no seed")
    given = model.model_fields_set
    filled: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    filled |= {name: getattr(run_model, name) for name in _OF_THE_RUN}
    update = {name: value for name, value in filled.items() if name not in given and value is not None}
    model = with_requests_of(model.model_copy(update=update), profile)
    return role.model_copy(update={"model": model, "profile": profile.model_dump(mode="json")})


def _profile(role: ModelRole) -> Profile:
    """Returns a further model's profile: the stored one, that of its file, or that of the agent it names."""
    if isinstance(role.profile, dict):
        return checked_profile(role.profile, "profile")
    if not role.profile:
        raise UserError(
            "say how it is asked, as in profile=uitars-1.5 (rollouts list agents), or name a profile's file"
        )
    if is_file_name(role.profile):
        return read_profile(Path(role.profile))
    profile = getattr(registry.agent(role.profile), "profile", None)
    if not isinstance(profile, Profile):
        raise UserError(f"profile: the agent {role.profile} has none: take one as uitars-1.5 or qwen3-vl, or a file")
    return profile
