"""The commands that there are, as their programs define them, and what is wrong with a command line that a text shows."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import typer

from rollout_tasks.cli import main, program
from tests.conftest import REPOSITORY

_ASSIGNMENT = re.compile(r"\w+=")
_HEREDOC = re.compile(r"<<'?(?P<end>[A-Z]+)'?(?P<rest>[^\n]*)\n.*?^(?P=end)$", re.M | re.S)
_PLACEHOLDER = {"..."}


def commands_of(shell: str) -> Iterator[list[str]]:
    """Yields the words of each command of a piece of shell, without assignments and redirections."""
    text = _HEREDOC.sub(r"\g<rest>", shell).replace("\\\n", " ")
    for line in text.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        skip = False
        for word in [*lexer, ";"]:
            if set(word) <= set(";&|()"):
                if words := _plain(words):
                    yield words
                words = []
            elif set(word) <= set("<>"):
                skip = True
            elif skip:
                skip = False
            elif word not in _PLACEHOLDER:
                words.append(word)


def _plain(words: list[str]) -> list[str]:
    """Returns a command without assignments before it, and without the dollar of a `$(...)` after it."""
    while words and (_ASSIGNMENT.match(words[0]) or words[0] in {"$", "{", "}", "!", "-"}):
        words = words[1:]
    return words[:-1] if words and words[-1] == "$" else words


def resolved(words: Sequence[str]) -> tuple[Callable[[Sequence[str]], str | None], list[str]] | None:
    """Returns what judges the arguments of a command of this project, and those arguments; None for other programs."""
    first, rest = words[0], list(words[1:])
    if first in {"sudo", "exec"} and rest:
        return resolved(rest)
    if first.startswith("docker") and "cli" in rest:  # the entry point of that container is python
        return resolved(["python", *rest[rest.index("cli") + 1 :]])
    if first in {"python", "python3", ".venv/bin/python"} and rest:
        if rest[0] == "-m" and len(rest) > 1:
            return (lambda given: _module_problem(rest[1], given)), rest[2:]
        if rest[0] == "-c":
            return None
        if rest[0].endswith(".py"):
            return resolved(rest)
        return (lambda _: f"python cannot run {rest[0]!r}"), rest[1:]
    if first.rpartition("/")[2] == "rollouts":
        return (lambda given: _typer_problem(_rollouts(), given)), rest
    if first == "celery":
        return _celery_problem, rest
    if first.startswith(("scripts/", "./scripts/")):
        path = first.removeprefix("./")
        return (lambda given: _script_problem(path, given)), rest
    if first.endswith(".py") and "/" not in first and (REPOSITORY / "scripts" / first).exists():
        return (lambda _: f"{first} is not where the command is: scripts/{first}"), rest
    return None


def problem(words: Sequence[str]) -> str | None:
    """Returns what is wrong with a command line of this project; None if nothing is, or if it is another program's."""
    found = resolved(words)
    return found and found[0](found[1])


@cache
def _rollouts() -> Any:
    """`rollouts` with all its subcommands, imported."""
    group = typer.main.get_command(main.application)
    program.take_h_for_help(group)
    return group


def _typer_problem(command: Any, given: Sequence[str]) -> str | None:
    settings = {**command.context_settings}
    context = command.context_class(command, info_name=command.name, **settings)
    try:
        _, rest, _ = command.make_parser(context).parse_args(list(given))
    except (typer.TyperException, click.ClickException) as error:
        return str(error.format_message())
    below = getattr(command, "commands", None)
    if isinstance(command, main.SubcommandGroup):
        below = {name: main.load(name) for name in main.SUBCOMMANDS if rest[:1] == [name]} if rest else {}
    if below is None:
        return f"{command.name} takes no argument {rest[0]!r}" if rest else None
    if not rest:
        return None
    if rest[0] not in below:
        return f"{command.name} has no command {rest[0]!r}"
    return _typer_problem(below[rest[0]], rest[1:])


@cache
def _script(path: str) -> Any:
    """The application of a Python script; None for a module that is none."""
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    shown = re.search(r"^from (\S+) import main$", text, re.M)
    module = import_module(shown[1] if shown else path.removesuffix(".py").replace("/", "."))
    for name in ("application", "_application"):
        if found := getattr(module, name, None):
            break
    else:
        if not hasattr(module, "main"):
            return None
        found = typer.Typer()
        found.command()(module.main)
    command = typer.main.get_command(found)
    program.take_h_for_help(command)
    command.name = path
    return command


def _script_problem(path: str, given: Sequence[str]) -> str | None:
    if not (REPOSITORY / path).is_file():
        return f"there is no {path}"
    if path.endswith(".py"):
        return _typer_problem(_script(path), given) if _script(path) else None
    if path == "scripts/quickstart.sh":
        return _typer_problem(_script("scripts/submit.py"), given[1:] if given[:1] == ["--light"] else given)
    if path == "scripts/test.sh":
        known = {"--all", "-k"}
        return next(
            (f"{path} is not known to take {word}" for word in given if word[0] == "-" and word not in known), None
        )
    return None


@cache
def _module_options(module: str) -> frozenset[str]:
    path = REPOSITORY / module.replace(".", "/")
    file = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    found = {"--help", "-h"}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            found |= {one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return frozenset(found)


def _module_problem(module: str, given: Sequence[str]) -> str | None:
    if module == "celery":
        return _celery_problem(given)
    if module == "rollout_tasks.cli.main":
        return _typer_problem(_rollouts(), given)
    if not (module.startswith("tests.") and (REPOSITORY / module.partition(".")[0]).is_dir()):
        return None
    options = [word.partition("=")[0] for word in given if word.startswith("--")]
    return next((f"python -m {module} has no {one}" for one in options if one not in _module_options(module)), None)


@cache
def _celery() -> Any:
    """Celery's command, with the options that this project adds to its worker."""
    from celery.bin.celery import celery
    from celery.bin.worker import worker

    from rollout_tasks.app import app
    from rollout_tasks.worker import bootsteps

    bootsteps.install(app)
    known = {spelling for option in worker.params for spelling in option.opts}
    worker.params.extend(option for option in app.user_options["worker"] if not known & {*option.opts})
    return celery


def _celery_problem(given: Sequence[str]) -> str | None:
    command, rest, path = _celery(), list(given), "celery"
    while True:
        context = click.Context(command, info_name=command.name, ignore_unknown_options=False)
        context.allow_interspersed_args = not isinstance(command, click.Group)
        if path == "celery flower":
            return _flower_problem(rest)
        try:
            _, rest, _ = command.make_parser(context).parse_args(rest)
        except click.ClickException as error:
            return f"{path}: {error.format_message()}"
        if not isinstance(command, click.Group) or not rest:
            return None
        if rest[0] not in command.commands:
            return f"{path} has no command {rest[0]!r}"
        path += f" {rest[0]}"
        command, rest = command.commands[rest[0]], rest[1:]


def _flower_problem(given: Sequence[str]) -> str | None:
    import flower.options  # noqa: F401  (defines them)
    from tornado.options import options

    named = [word.lstrip("-").partition("=")[0].replace("-", "_") for word in given if word.startswith("-")]
    return next((f"celery flower has no --{name}" for name in named if name not in options), None)


def spelled_options(text: str) -> list[str]:
    """Returns the long options that a text names outside of a command line."""
    return re.findall(r"(?<![\w\-/.=])--[a-z][a-z0-9_-]*[a-z0-9]", text)


def has_option(command: Sequence[str], option: str) -> bool:
    """Whether a command of this project has an option, whatever its value."""
    return _has_option(tuple(command), option)


@cache
def _has_option(command: tuple[str, ...], option: str) -> bool:
    found = resolved(command)
    assert found is not None, command
    return any(found[0]([*found[1], option, *value]) is None for value in ([], ["1"]))


def python_files(*packages: str) -> Iterator[Path]:
    """Yields the Python files of some packages of this repository."""
    for package in packages:
        yield from sorted((REPOSITORY / package).rglob("*.py"))
