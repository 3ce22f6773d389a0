"""A run's options on the command line, made from the fields of its configuration (`config`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rollout_tasks.config import RunConfig
from rollout_tasks.config_fields import field_panel, field_spellings


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
        """Returns the option for Typer. Values stay text: the configuration checks them, and says what is wrong."""
        is_flag = self.field.annotation is bool
        is_list = get_origin(self.field.annotation) is tuple
        part = self.path[0].replace("_", " ").capitalize() if len(self.path) > 1 else "Run"
        panel = field_panel(self.field) or ("VMs" if part == "Vm" else part)
        option = typer.Option(
            self.spellings[0],
            *(spelling for spelling in self.spellings[1:] if spelling not in self.aliases()),
            help=f"{self.field.description} [dim]{self._choices()}{self._default()}{self._also()}[/dim]",
            rich_help_panel=panel,
            show_default=False,
            metavar=None if is_flag else "VALUE",
        )
        kind: Any = bool if is_flag else list[str] if is_list else str
        annotation = Annotated[kind | None, option]
        return inspect.Parameter(
            self.parameter_name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
        )

    def aliases(self) -> Iterator[str]:
        """Yields other names of the option."""
        return (spelling for spelling in self.spellings[1:] if spelling.startswith("--"))

    def _also(self) -> str:
        return "".join(f" Also {alias}." for alias in self.aliases())

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
    """Yields every field that has a command-line spelling."""
    for name, field in model.model_fields.items():
        if spellings := field_spellings(field):
            yield ConfigOption((*path, name), tuple(spellings), field)
        elif isinstance(part := field.annotation, type) and issubclass(part, BaseModel):
            yield from config_options(part, (*path, name))


def aliases() -> dict[str, str]:
    """Returns the options' other names and those that help shows, without dashes, for `program.any_spelling`."""
    return {
        alias.removeprefix("--"): option.spellings[0].split("/")[0].removeprefix("--")
        for option in config_options()
        for alias in option.aliases()
    }


def with_config_options(command: Callable[..., Any], parts: Collection[str] | None = None) -> Callable[..., Any]:
    """Adds a run's options to a command, which gets those that were given as one dictionary ``options``.

    Args:
        command: The command.
        parts: The fields of the configuration whose options it has. Default: all.
    """
    every = [option for option in config_options() if parts is None or option.path[0] in parts]

    def wrapper(**values: Any) -> Any:
        options: dict[str, Any] = {}
        for option in every:
            value = values.pop(option.parameter_name)
            if value is not None and value != []:  # [] is a repeatable option that was not given
                _put(options, option.path, value)
        raise typer.Exit(command(options=options, **values))

    command_parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.name != "options"
    ]
    wrapper.__signature__ = inspect.Signature([*command_parameters, *(option.parameter() for option in every)])  # type: ignore[attr-defined]
    wrapper.__doc__ = command.__doc__
    return wrapper


def spellings_of(options: Mapping[str, Any]) -> set[str]:
    """Returns the command-line spellings of the options in a nested dictionary."""

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
