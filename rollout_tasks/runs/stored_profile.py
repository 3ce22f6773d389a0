"""Checks the profile in a stored configuration, where that is read: a newer version may have stored what this one does not know."""

from __future__ import annotations

from rollout_tasks.config import RunConfig


def check_stored(config: RunConfig) -> None:
    """Checks that this version can read the profile of a stored configuration, if it has one.

    Raises:
        UserError: It cannot; names the field.
    """
    if config.profile is not None:
        from rollout_tasks.agents.profiles.profile_file import checked_profile  # few runs need it

        checked_profile(config.profile, "profile")
