"""Plays an episode with a profile, the client that runs use and a real HTTP server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmark.items import Item
from rollout_tasks import registry
from rollout_tasks.agents.base import Episode
from rollout_tasks.agents.profiles.agent import ProfileAgent
from rollout_tasks.agents.profiles.built_in import BUILT_IN
from rollout_tasks.agents.profiles.profile import Profile
from rollout_tasks.config import RunConfig
from rollout_tasks.models.client import open_model
from rollout_tasks.runs.agent_profile import with_profile
from rollout_tasks.trajectories.writer import TrajectoryWriter
from tests.unit.agents.chat_endpoint import ChatEndpoint
from tests.unit.agents.profiles.drawn_desktop import DrawnDesktop

QUESTION = "Make the {instruction} bold, please."
"""With braces, which are no place."""
MODEL = "the-model"


def configuration(profile: Profile | str, url: str = "", **options: Any) -> RunConfig:
    """Returns a run's configuration as it is after submission."""
    stored = BUILT_IN[profile] if isinstance(profile, str) else profile
    model = {"name": MODEL, "base_url": url or None, "max_retries": 1, **options.pop("model", {})}
    values = {"agent": registry_name(), "profile": stored.model_dump(mode="json"), "model": model, **options}
    return with_profile(RunConfig.model_validate(values))


def registry_name() -> str:
    """Makes the agent for profiles known, where an older version of this package is installed."""
    from importlib.metadata import EntryPoint

    point = EntryPoint("profile", "rollout_tasks.agents.profiles.agent:ProfileAgent", registry.AGENTS)
    registry._offered(registry.AGENTS).setdefault("profile", point)
    return "profile"


def play(
    endpoint: ChatEndpoint,
    profile: Profile | str,
    desktop: DrawnDesktop,
    /,
    directory: Path | None = None,
    **options: Any,
) -> Episode:
    """Plays one episode.

    Args:
        endpoint: The model's.
        profile: The profile, or the name of a built-in one.
        desktop: The environment.
        directory: Where the trajectory goes; None: it is not written.
        **options: Options of the run.
    """
    submitted = configuration(profile, endpoint.url, **options)
    config = RunConfig.model_validate_json(submitted.model_dump_json(exclude_defaults=True))  # as workers get it
    trajectory = TrajectoryWriter(directory or Path(), enabled=directory is not None)
    trajectory.start({})
    item = Item(id="1", question=QUESTION)
    model = open_model(config.model, session_id="run/1/0/1", api_key="none")
    try:
        seen = desktop.reset(item)
        trajectory.observed(seen)
        return ProfileAgent(config).run(item, desktop, seen, model, config.limits, trajectory)
    finally:
        trajectory.finish()
