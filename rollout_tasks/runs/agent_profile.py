"""Writes the profile of a run's agent into its configuration, so that every worker has it, and so that a resume has the same.

What the profile says and the run leaves open is filled in: options that are given win, those with a default of their own, too.
What another agent's profile filled in before, as in a printed configuration, is taken out again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from rollout_tasks import registry
from rollout_tasks.agents.profiles.profile import Profile
from rollout_tasks.agents.profiles.profile_file import checked_profile, is_file_name, read_profile
from rollout_tasks.agents.profiles.profile_texts import with_texts
from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.errors import UserError
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.runs.profile_options import check_options, request_fields_of, with_requests_of
from rollout_tasks.runs.role_profiles import with_role_profiles
from rollout_tasks.runs.stored_profile import check_stored

_OF_OTHER_AGENTS = {"max_images": "--max-images", "keep_thinking": "--keep-thinking", "images_in": "--images-in"}
"""Options of prompts that OSWorld's own agents make themselves."""
_OSWORLD_DESKTOP = {"action_space": "pyautogui", "observation_type": "screenshot", "require_a11y_tree": False}
_Options = TypeVar("_Options", bound=BaseModel)


def with_profile(config: RunConfig) -> RunConfig:
    """Returns a configuration with its agent's profile, and with what that says of options that are not given.

    Harmless when repeated. A configuration whose agent has no profile is returned as it is, without what another agent's filled in.

    Raises:
        UserError: The profile's file is wrong, one of its texts cannot be read, or an option contradicts it.
    """
    config = with_role_profiles(without_other_profile(config))
    profile = _profile(config)
    if profile is None:
        return _for_osworld_agent(config)
    named = f"--agent {config.agent or profile.name}"
    if _has_file(config):
        config = config.model_copy(update={"agent": registry.FILE_AGENT})
    check_options(config, profile)
    try:
        profile = with_texts(profile)
    except UserError as error:
        raise UserError(f"{named}: {error}") from error
    filled = _filled(config.model, _fillings(profile)["model"])
    update = {
        "profile": profile.model_dump(mode="json"),
        "model": with_requests_of(filled, profile),
        "desktop": _filled(config.desktop, _fillings(profile)["desktop"]),
        "limits": _filled(config.limits, _fillings(profile)["limits"]),
    }
    return _as_stored(config.model_copy(update=update), named)


def _for_osworld_agent(config: RunConfig) -> RunConfig:
    """Returns a configuration with the actions and the observation that OSWorld's own agents have; any other agent's unchanged.

    Raises:
        UserError: An option contradicts them, or would be ignored.
    """
    if config.agent is None or not config.agent.startswith(registry.OSWORLD_AGENT):
        return config
    desktop = _filled(config.desktop, _OSWORLD_DESKTOP)
    for name, spelling in (("action_space", "--action-space"), ("observation_type", "--observation-type")):
        if (given := getattr(desktop, name)) != _OSWORLD_DESKTOP[name]:
            raise UserError(f"{spelling} {given}: --agent {config.agent} has {_OSWORLD_DESKTOP[name]}")
    ignored = ["--system-prompt-file"] if config.system_prompt is not None else []
    default = ModelConfig()
    ignored += [
        spelling for name, spelling in _OF_OTHER_AGENTS.items() if getattr(config.model, name) != getattr(default, name)
    ]
    if ignored:
        raise UserError(f"{ignored[0]}: --agent {config.agent} makes its prompts itself")
    return config.model_copy(update={"desktop": desktop})


def without_other_profile(config: RunConfig) -> RunConfig:
    """Returns a configuration without what the profile of another agent than its own filled in; unchanged if there is nothing.

    Of such a configuration, and of a printed one (which says ``profile: null``) that is given an agent with a profile, values
    that are an option's default do not count as given.

    Raises:
        UserError: There is no such agent, or the profile is wrong.
    """
    agent_profile = _own_profile(config)
    stored = config.profile
    if stored is None:
        printed = "profile" in config.model_fields_set
        if (agent_profile is None or not printed) and (agent_profile is not None or config.model.api == "chat"):
            return config
    elif config.agent == registry.FILE_AGENT or (
        agent_profile is not None and stored.get("name") == agent_profile.name and not _has_file(config)
    ):
        return config
    values = config.model_dump(mode="json", exclude_defaults=True, exclude={"profile": True, "model": {"api"}})
    if stored is not None:
        profile = checked_profile(stored, "profile")
        for part, filled in _fillings(profile).items():
            values[part] = _unlike(values.get(part, {}), filled)
        body = values["model"].get("extra_body", {})
        values["model"]["extra_body"] = _unlike(body, request_fields_of(profile))
    return parse_config({name: value for name, value in values.items() if value != {}})


def default_profile_name(environment: str) -> str | None:
    """Returns the name of the profile that an environment's own agent has; None if it has none.

    Raises:
        UserError: The agent cannot be loaded.
    """
    profile = _own_profile(RunConfig(env_mode=environment))
    return None if profile is None else profile.name


def needed_context(profile: Mapping[str, Any] | None) -> int | None:
    """Returns the tokens that the endpoint of a model with a stored profile must be able to hold; None if it does not say."""
    needed = (profile or {}).get("context_length")
    return needed if type(needed) is int else None


def _has_file(config: RunConfig) -> bool:
    return config.agent is not None and is_file_name(config.agent)


def _profile(config: RunConfig) -> Profile | None:
    """Returns the profile of a configuration's agent: the stored one, its file's, or its own."""
    if config.agent is not None and is_file_name(config.agent):
        return read_profile(Path(config.agent))
    if config.profile is not None:
        return checked_profile(config.profile, "profile")
    if config.agent == registry.FILE_AGENT:
        raise UserError("--agent profile: name a profile's file, as in --agent my-profile.yaml")
    return _own_profile(config)


def _own_profile(config: RunConfig) -> Profile | None:
    """Returns the profile that a configuration's agent is known for; of an agent with a file, the file's."""
    agent = config.agent
    if agent is not None and is_file_name(agent):
        return read_profile(Path(agent))
    if agent is None:
        with suppress(UserError):  # the preflight reports it
            agent = registry.environment(config.env_mode).default_agent
    if agent is None:
        return None
    try:
        profile = getattr(registry.agent(agent), "profile", None)
    except UserError as error:
        raise UserError(f"--agent: {error}") from error
    return profile if isinstance(profile, Profile) else None


def _fillings(profile: Profile) -> dict[str, dict[str, Any]]:
    """Returns what a profile fills in, by the part of the configuration."""
    sampling = profile.sampling
    model = {"temperature": sampling.temperature, "top_p": sampling.top_p, "max_images": profile.history.images}
    desktop = {
        "action_space": "pyautogui",
        "observation_type": "screenshot",
        "require_a11y_tree": False,
        "sleep_after_execution": profile.pause,
    }
    limits = {"max_turns": profile.max_steps, "max_seconds": profile.max_seconds}
    return {
        "model": model,
        "desktop": {name: value for name, value in desktop.items() if value is not None},
        "limits": {name: value for name, value in limits.items() if value is not None},
    }


def _filled(part: _Options, values: dict[str, Any]) -> _Options:
    """Returns options with values for those that were not given."""
    return part.model_copy(update={name: value for name, value in values.items() if name not in part.model_fields_set})


def _unlike(values: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Returns the values that differ from others of their name."""
    return {name: value for name, value in values.items() if name not in others or others[name] != value}


def _as_stored(config: RunConfig, where: str) -> RunConfig:
    """Returns a configuration as workers will read it; what could not be stored or read is an error here already."""
    try:
        values = json.loads(config.model_dump_json(exclude_unset=True))
        read = parse_config(values)
        check_stored(read)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except ValueError as error:
        raise UserError(f"{where}: cannot be stored: {' '.join(str(error).split())[:300]}") from error
    return read
