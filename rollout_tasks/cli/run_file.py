"""Reads a run's configuration from a YAML file, applies options that override it, and writes it as YAML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.errors import UserError
from rollout_tasks.runs.agent_profile import with_profile, without_other_profile
from rollout_tasks.strict_yaml import UnwelcomeYaml, dump_yaml, load_yaml


def resolve_config(file: Path | None, options: Mapping[str, Any]) -> RunConfig:
    """Returns the configuration of a file, overridden by options, with the profile of its agent.

    Raises:
        UserError: The file or the profile cannot be read, or a value is wrong.
    """
    values = {} if file is None else _read_yaml(file)
    if file is not None:
        below = parse_config(values, where=f"--config: {file}")
        if not options:
            return with_profile(below)
        values = _without_other_profile(below, values, options)
    return with_profile(parse_config(_merged(values, options)))


def _without_other_profile(below: RunConfig, values: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a file's values without what was filled in there by the profile of another agent than that of the options."""
    update = {name: options[name] for name in ("agent", "env_mode") if name in options}
    changed = below.model_copy(update=update)
    left = without_other_profile(changed)
    return values if left is changed else left.model_dump(mode="json", exclude_unset=True)


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        loaded = load_yaml(file.read_text(encoding="utf-8"))
    except UnwelcomeYaml as error:
        raise UserError(f"--config: {file}: {error}") from error
    except OSError as error:
        raise UserError(f"--config: {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"--config: {file} is not YAML: {error}") from error
    if loaded is not None and not isinstance(loaded, dict):
        raise UserError(f"--config: {file} is not a mapping of options")
    return loaded or {}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _merged(under, value) if isinstance(value, dict) and isinstance(under, dict) else value
    return merged


def read_system_prompt(file: Path) -> str:
    """Returns the text that replaces the prompt of a run's agent.

    Raises:
        UserError: The file cannot be read, is not text, or is empty.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"--system-prompt-file: {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"--system-prompt-file: {file} is not UTF-8") from error
    if not text.strip():
        raise UserError(f"--system-prompt-file: {file} is empty")
    return text


def as_yaml(config: RunConfig) -> str:
    """Returns the configuration as a run.yaml that gives the same run again."""
    return dump_yaml(config.model_dump(mode="json"))
