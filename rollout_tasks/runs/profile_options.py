"""How a run's options and a profile go together: what it adds to requests, and options that it contradicts.

None that was given may be ignored without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rollout_tasks.agents.profiles.profile import Profile
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.model_config import ModelConfig

_MOST_TOKENS = {"responses": "max_output_tokens"}
"""What an API calls the most tokens of a reply, if not ``max_tokens``."""


def request_fields_of(profile: Profile) -> dict[str, Any]:
    """Returns the fields that a profile adds to each request."""
    extra = dict(profile.sampling.extra)
    if profile.sampling.max_tokens is not None:
        extra[_MOST_TOKENS.get(profile.api, "max_tokens")] = profile.sampling.max_tokens
    return extra


def with_requests_of(model: ModelConfig, profile: Profile) -> ModelConfig:
    """Returns a model's options with a profile's API and the fields that it adds to requests; fields that are given win."""
    extra = {**request_fields_of(profile), **model.extra_body}
    if model.max_completion_tokens is not None:  # replaces both
        extra = {name: value for name, value in extra.items() if name not in ("max_tokens", "max_output_tokens")}
    return model.model_copy(update={"api": profile.api, "extra_body": extra})


def check_options(config: RunConfig, profile: Profile) -> None:
    """Checks that the options do not contradict a profile.

    Raises:
        UserError: One does; names it.
    """
    for option, problem in _problems(config, profile):
        raise UserError(f"{option}: {problem}")


def _problems(config: RunConfig, profile: Profile) -> Iterator[tuple[str, str]]:
    """Yields options with what is wrong with them."""
    agent, model, desktop = f"the agent {profile.name}", config.model, config.desktop
    if config.system_prompt is not None:
        yield (
            "--system-prompt-file",
            f"the texts of {agent} are in its profile: write a profile's file that is based on it",
        )
    if model.max_images == 0:
        yield "--max-images", f"{agent} needs at least the current screenshot"
    if model.max_images == 1 and profile.protocol == "responses_computer":
        yield "--max-images", f"{agent} sends at least two screenshots: the first, with the task, and the current one"
    for option, field, wanted in (
        ("--action-space", "action_space", "pyautogui"),
        ("--observation-type", "observation_type", "screenshot"),
    ):
        given = getattr(desktop, field)
        if field in desktop.model_fields_set and given != wanted:
            yield option, f"{agent} needs {wanted}, not {given}"
    if model.images_in != "user":
        yield "--images-in", f"{agent} sends screenshots where its protocol has them"
    if desktop.a11y != "outline":
        yield "--a11y", f"{agent} sees screenshots alone"
    if desktop.require_terminal:
        yield "--require-terminal", f"{agent} sees screenshots alone"
    if profile.computer_tool is not None:
        if model.keep_thinking:
            yield "--keep-thinking", f"{agent} always sends the model's thinking back"
        if model.seed is not None:
            yield "--model-seed", f"{agent} calls its model through an API that has no seed"
