"""Reads a run's configuration from a YAML file, applies options that override it, and writes it as YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.errors import UserError
from rollout_tasks.runs.agent_profile import with_profile

if TYPE_CHECKING:
    import yaml


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
    return with_profile(parse_config(_merged(values, options)))


_FLOAT, _FIRST_OF_NUMBERS = "tag:yaml.org,2002:float", list("-+.0123456789")
_EXPONENT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$")


class RepeatedKey(ValueError):
    """A mapping has a key twice; YAML itself would silently take the last one."""


def _loader() -> type[yaml.SafeLoader]:
    """Returns a safe loader that raises `RepeatedKey`, and takes 1e-5 for a number, as YAML 1.2 does.

    Made here because only runs with --config need YAML.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
            node = super().compose_mapping_node(anchor)
            lines: dict[str, int] = {}
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode):
                    line = key.start_mark.line + 1
                    if key.value in lines:
                        raise RepeatedKey(f"{key.value} occurs twice, in lines {lines[key.value]} and {line}")
                    lines[key.value] = line
            return node

    Loader.add_implicit_resolver(_FLOAT, _EXPONENT, _FIRST_OF_NUMBERS)
    return Loader


def _read_yaml(file: Path) -> dict[str, Any]:
    import yaml

    try:
        loaded = yaml.load(file.read_text(encoding="utf-8"), _loader())  # noqa: S506 - a SafeLoader
    except RepeatedKey as error:
        raise UserError(f"--config: {file}: {error}") from error
    except OSError as error:
        raise UserError(f"--config: {file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
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
    import yaml

    class Dumper(yaml.SafeDumper):
        """Quotes text that `_loader` would take for a number."""

    Dumper.add_implicit_resolver(_FLOAT, _EXPONENT, _FIRST_OF_NUMBERS)
    return yaml.dump(config.model_dump(mode="json"), Dumper=Dumper, sort_keys=False, allow_unicode=True)
