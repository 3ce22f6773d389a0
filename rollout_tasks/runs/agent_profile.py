"""Writes the profile of a run's agent into its configuration, so that every worker has it, and so that a resume has the same.

What the profile says and the run leaves open is filled in: options that are given win, those with a default of their own, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from rollout_tasks import registry
from rollout_tasks.agents.profiles.conversation import check_texts
from rollout_tasks.agents.profiles.profile import Profile
from rollout_tasks.agents.profiles.profile_file import checked_profile, is_file_name, read_profile
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError

FILE_AGENT = "profile"
"""The agent that takes the profile of the configuration."""
_APIS = {"responses_computer": "responses", "anthropic_computer": "messages"}
_Options = TypeVar("_Options", bound=BaseModel)


def with_profile(config: RunConfig) -> RunConfig:
    """Returns a configuration with its agent's profile, and with what that says of options that are not given.

    Harmless when repeated. A configuration whose agent has no profile is returned as it is.

    Raises:
        UserError: The profile's file is wrong, one of its texts cannot be read, or an option contradicts it.
    """
    profile, config = _profile(config)
    if profile is None:
        return config
    try:
        check_texts(profile)
    except UserError as error:
        raise UserError(f"--agent {profile.name}: {error}") from error
    _check_options(config, profile)
    sampling = profile.sampling
    model: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_images": profile.history.images,
    }
    extra = dict(sampling.extra)
    api = _APIS.get(profile.protocol, "chat")
    if sampling.max_tokens is not None and config.model.max_completion_tokens is None:
        extra["max_output_tokens" if api == "responses" else "max_tokens"] = sampling.max_tokens
    filled = _filled(config.model, model)
    filled = filled.model_copy(update={"api": api, "extra_body": {**extra, **config.model.extra_body}})
    desktop: dict[str, Any] = {
        "action_space": "pyautogui",
        "observation_type": "screenshot",
        "require_a11y_tree": False,
    }
    if profile.pause is not None:
        desktop["sleep_after_execution"] = profile.pause
    limits = {} if profile.max_steps is None else {"max_turns": profile.max_steps}
    return config.model_copy(
        update={
            "profile": profile.model_dump(mode="json"),
            "model": filled,
            "desktop": _filled(config.desktop, desktop),
            "limits": _filled(config.limits, limits),
        }
    )


def needed_context(config: RunConfig) -> int | None:
    """Returns the tokens that the model's endpoint must be able to hold; None if the run does not say."""
    needed = (config.profile or {}).get("context_length")
    return needed if type(needed) is int else None


def _profile(config: RunConfig) -> tuple[Profile | None, RunConfig]:
    """Returns the profile of a configuration's agent, and the configuration with the agent that takes it."""
    agent = config.agent
    if agent is None:
        return None, config
    if is_file_name(agent):
        return read_profile(Path(agent)), config.model_copy(update={"agent": FILE_AGENT})
    try:
        own = getattr(registry.agent(agent), "profile", None)
    except UserError as error:
        raise UserError(f"--agent: {error}") from error
    stored = config.profile
    if agent == FILE_AGENT:
        if stored is None:
            raise UserError("--agent profile: name a profile's file, as in --agent my-profile.yaml")
        return checked_profile(stored, "profile"), config
    if not isinstance(own, Profile):
        return None, config
    if stored is not None and stored.get("name") == own.name:
        return checked_profile(stored, "profile"), config
    return own, config


def _check_options(config: RunConfig, profile: Profile) -> None:
    if config.system_prompt is not None:
        raise UserError(
            f"--system-prompt-file: the texts of the agent {profile.name} are in its profile:"
            " write a profile's file that is based on it"
        )
    if config.model.max_images == 0:
        raise UserError(f"--max-images: the agent {profile.name} needs at least the current screenshot")
    for option, field, wanted in (
        ("--action-space", "action_space", "pyautogui"),
        ("--observation-type", "observation_type", "screenshot"),
    ):
        given = getattr(config.desktop, field)
        if field in config.desktop.model_fields_set and given != wanted:
            raise UserError(f"{option}: the agent {profile.name} needs {wanted}, not {given}")


def _filled(part: _Options, values: dict[str, Any]) -> _Options:
    """Returns options with values for those that were not given."""
    return part.model_copy(update={name: value for name, value in values.items() if name not in part.model_fields_set})
