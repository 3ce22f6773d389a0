"""Checks the profiles in a stored configuration where it is read: a newer version may have stored what this one does not know."""

from __future__ import annotations

from rollout_tasks.config import RunConfig


def check_stored(config: RunConfig) -> None:
    """Checks that this version can read the profiles of a stored configuration, if it has any.

    Raises:
        UserError: It cannot; names the field.
    """
    stored = {"profile": config.profile} if config.profile is not None else {}
    stored |= {
        f"model_roles.{role.role}.profile": role.profile
        for role in config.model_roles
        if isinstance(role.profile, dict)
    }
    if stored:
        from rollout_tasks.agents.profiles.profile_file import checked_profile  # few runs need it

        for where, profile in stored.items():
            checked_profile(profile, where)
