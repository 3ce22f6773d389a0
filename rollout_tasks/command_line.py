"""What the commands share: a run's options as command-line options, and errors as one sentence without a traceback."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from benchmark.errors import BenchmarkError
from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.errors import UserError
from rollout_tasks.unicode_text import printable

if TYPE_CHECKING:
    import yaml

WRONG_INPUT, INTERRUPTED = 2, 130
ANY_SPELLING = {"token_normalize_func": lambda token: token.replace("_", "-")}
"""Context settings that accept ``--num_rollouts`` for ``--num-rollouts``, and so on for every option."""


def _help_by_letter(command: Any) -> None:
    """Has a command, and all below it, take ``-h`` for ``--help``."""
    command.context_settings = {**command.context_settings, "help_option_names": ["--help", "-h"]}
    for below in getattr(command, "commands", {}).values():
        _help_by_letter(below)


def run(application: typer.Typer) -> None:
    """Runs a command; what a user got wrong becomes one sentence on stderr and exit code 2."""
    command = typer.main.get_command(application)
    _help_by_letter(command)
    try:
        code: Any = command(standalone_mode=False)
    except typer.TyperException as error:
        code = _complain(_usage(error)) if error.format_message() else WRONG_INPUT
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except (UserError, BenchmarkError) as error:
        code = _complain(str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except _redis_errors() as error:
        of_pool = isinstance(error, _redis_errors()[0])
        code = _complain(str(error) if of_pool else f"Redis: {error}")
    sys.exit(code)


def _redis_errors() -> tuple[type[Exception], ...]:
    """What Redis and the pool raise; looked up when something is raised, since importing them takes half a refusal's time."""
    from redis import RedisError

    from vm_pool.errors import PoolError

    return PoolError, RedisError


def _usage(error: typer.TyperException) -> str:
    sentence = error.format_message().rstrip(".")
    return sentence[:1].lower() + sentence[1:]


def _complain(sentence: str) -> int:
    sys.stderr.write(f"error: {printable(' '.join(sentence.split()))}\n")
    return WRONG_INPUT


def print_json(values: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(values, indent=2, ensure_ascii=False, default=str) + "\n")


def key_values(name: str, pairs: Sequence[str]) -> dict[str, Any]:
    """``key=value`` pairs of a repeatable option; a value that is JSON is taken as such, any other as text.

    Raises:
        UserError: One has no key or no value.
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UserError(f"{name} {pair}: must look like key=value")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
    return options


@dataclass(frozen=True, slots=True)
class ConfigOption:
    """One field of the configuration as a command-line option."""

    path: tuple[str, ...]
    spellings: tuple[str, ...]
    field: FieldInfo

    @property
    def parameter_name(self) -> str:
        """The option's Python name."""
        return "__".join(self.path)

    def parameter(self) -> inspect.Parameter:
        """The option as Typer reads it. Values stay text: the configuration itself checks them, and says what is wrong."""
        is_flag = self.field.annotation is bool
        is_list = get_origin(self.field.annotation) is tuple
        panel = self.path[0].replace("_", " ").capitalize() if len(self.path) > 1 else "Run"
        option = typer.Option(
            *self.spellings,
            help=f"{self.field.description} [dim]{self._choices()}{self._default()}[/dim]",
            rich_help_panel="VMs" if panel == "Vm" else panel,
            show_default=False,
            metavar=None if is_flag else "VALUE",
        )
        kind: Any = bool if is_flag else list[str] if is_list else str
        annotation = Annotated[kind | None, option]
        return inspect.Parameter(
            self.parameter_name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
        )

    def _choices(self) -> str:
        for kind in (self.field.annotation, *get_args(self.field.annotation)):
            if get_origin(kind) is Literal:
                return f"One of {', '.join(map(str, get_args(kind)))}. "
        return ""

    def _default(self) -> str:
        value = self.field.default
        if value is None or value in ((), {}):
            return ""
        return f"(default: {('on' if value else 'off') if isinstance(value, bool) else value})"


def config_options(model: type[BaseModel] = RunConfig, path: tuple[str, ...] = ()) -> Iterator[ConfigOption]:
    """Every field that has a command-line spelling."""
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict) and isinstance(spellings := extra.get("spellings"), list):
            yield ConfigOption((*path, name), tuple(map(str, spellings)), field)
        elif isinstance(part := field.annotation, type) and issubclass(part, BaseModel):
            yield from config_options(part, (*path, name))


def with_config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds a run's options to a command, which gets them as one dictionary ``options`` of those that were given."""
    every = list(config_options())

    def wrapper(**values: Any) -> Any:
        options: dict[str, Any] = {}
        for option in every:
            value = values.pop(option.parameter_name)
            if value is not None and value != []:  # of a repeatable one that was not given
                _put(options, option.path, value)
        raise typer.Exit(command(options=options, **values))

    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.name != "options"
    ]
    wrapper.__signature__ = inspect.Signature([*own, *(option.parameter() for option in every)])  # type: ignore[attr-defined]
    wrapper.__doc__ = command.__doc__
    return wrapper


def spellings_of(options: Mapping[str, Any]) -> set[str]:
    """How the options in a nested dictionary are spelled on the command line."""

    def given(path: tuple[str, ...]) -> bool:
        values: Any = options
        for part in path:
            if part not in values:
                return False
            values = values[part]
        return True

    return {option.spellings[0].split("/")[0] for option in config_options() if given(option.path)}


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        values = values.setdefault(part, {})
    values[path[-1]] = value


def resolve_config(file: Path | None, options: Mapping[str, Any]) -> RunConfig:
    """The configuration of a file, overridden by options.

    Raises:
        UserError: The file cannot be read, or a value is wrong.
    """
    values = {} if file is None else _read_yaml(file)
    if file is not None:
        below = parse_config(values, where=f"--config: {file}")
        if not options:
            return below
    return parse_config(_merged(values, options))


class RepeatedKey(ValueError):
    """A mapping has a key twice; YAML itself would take the last one without a word."""


def _loader_of_single_keys() -> type[yaml.SafeLoader]:
    """A safe loader that raises `RepeatedKey`; made here because only runs with a --config need YAML."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
            node = super().compose_mapping_node(anchor)
            lines: dict[str, int] = {}
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode):
                    line = key.start_mark.line + 1
                    if key.value in lines:
                        raise RepeatedKey(f"{key.value} stands there twice, in lines {lines[key.value]} and {line}")
                    lines[key.value] = line
            return node

    return Loader


def _read_yaml(file: Path) -> dict[str, Any]:
    import yaml

    try:
        loaded = yaml.load(file.read_text(encoding="utf-8"), _loader_of_single_keys())  # noqa: S506 - a SafeLoader
    except RepeatedKey as error:
        raise UserError(f"--config: {file}: {error}") from error
    except OSError as error:
        raise UserError(f"--config: {file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"--config: {file} is not YAML: {error}") from error
    if loaded is not None and not isinstance(loaded, dict):
        raise UserError(f"--config: {file} holds no mapping of options")
    return loaded or {}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _merged(under, value) if isinstance(value, dict) and isinstance(under, dict) else value
    return merged


def as_yaml(config: RunConfig) -> str:
    """The configuration as a run.yaml that gives the same run again."""
    import yaml

    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
