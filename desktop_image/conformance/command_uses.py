"""Finds what commands use: programs, Python modules, GNOME's settings, bus names, system files, internet hosts.

Shell text is parsed by its grammar, so that quotes, pipes and substitutions are read as the shell reads them.
"""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

Use = tuple[str, str]
"""Kind and name; the kinds are those of `touches.Touch`."""

_SHELLS = frozenset({"sh", "bash", "dash"})
_PYTHONS = re.compile(r"python(3(\.\d+)?)?")
_BUILT_IN = frozenset(
    """. : [ [[ alias bg break case cd command continue declare echo eval exec exit export false fg for hash history if jobs
    local popd printf pushd pwd read return set shift source test time times trap true type ulimit umask unalias unset wait
    while""".split()  # noqa: SIM905
)
"""Commands that the shell runs itself."""
_PREFIXES = frozenset({"env", "exec", "nice", "nohup", "setsid", "sudo", "timeout", "xargs"})
"""Programs that start the command in their arguments."""
_INSTALLERS = frozenset({"apt", "apt-get", "conda", "npm", "snap"})
_PACKAGE = re.compile(r"[A-Za-z0-9][\w.+-]*")
_PIPS = re.compile(r"pip(3(\.\d+)?)?")
_SYSTEM_FILES = ("/usr/", "/etc/", "/opt/", "/lib/", "/snap/", "/var/lib/")
_MODULES_OF_PYTHON = frozenset(sys.stdlib_module_names)
_DEEPEST = 5
"""Most levels of commands inside commands; real tasks have fewer."""


def uses_of_words(words: Sequence[str], depth: int = 0) -> Iterator[Use]:
    """Yields what a command uses, given as its words.

    Args:
        words: The program and its arguments.
        depth: How many commands this one is inside of; commands deeper than `_DEEPEST` are ignored.
    """
    if not words or depth > _DEEPEST:
        return
    program, arguments = words[0], list(words[1:])
    name = PurePosixPath(program).name
    if name not in _BUILT_IN and "/" not in program.removeprefix("/usr/bin/").removeprefix("/bin/"):
        yield "program", name
    elif program.startswith(_SYSTEM_FILES):
        yield "file", program
    if name in _SHELLS and "-c" in arguments:
        yield from uses_of_shell(" ".join(arguments[arguments.index("-c") + 1 :][:1]), depth + 1)
        return
    if _PYTHONS.fullmatch(name) and "-c" in arguments:
        yield from uses_of_python(" ".join(arguments[arguments.index("-c") + 1 :][:1]))
        return
    if name in _PREFIXES:
        yield from uses_of_words(_after_prefix(arguments), depth + 1)
        return
    yield from _uses_of_arguments(name, arguments)


def uses_of_shell(text: str, depth: int = 0) -> Iterator[Use]:
    """Yields what a piece of shell code uses."""
    if depth > _DEEPEST:
        return
    tree = _parser().parse(text.encode())
    for command in _commands(tree.root_node):
        words = [_word(child) for child in command.children if child.type != "variable_assignment"]
        yield from uses_of_words([word for word in words if word], depth + 1)


def uses_of_python(code: str) -> Iterator[Use]:
    """Yields the modules that Python code imports, except Python's own."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            if (top := name.partition(".")[0]) not in _MODULES_OF_PYTHON:
                yield "module", top


def split(command: str) -> list[str]:
    """Returns the words of a command that runs without a shell; split at blanks when quotes do not match."""
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def host_of(text: str) -> str:
    """Returns the host of a web page on the internet; empty for anything else."""
    if not text.startswith(("http://", "https://")):
        return ""
    try:
        host = urlsplit(text).hostname or ""
    except ValueError:
        return ""
    return "" if host in {"localhost", "127.0.0.1", "::1"} else host


def _uses_of_arguments(name: str, arguments: list[str]) -> Iterator[Use]:
    if name == "gsettings" and len(arguments) >= 2 and arguments[0] in {"get", "set", "reset", "range"}:
        yield "setting", " ".join(arguments[1:3])
    elif name in {"gdbus", "dbus-send", "busctl"}:
        yield from (("bus name", found) for found in _destinations(arguments))
    elif (name in _INSTALLERS and "install" in arguments) or (_PIPS.fullmatch(name) and "install" in arguments):
        yield from _packages(arguments)
    elif name == "git" and arguments[:1] == ["clone"]:
        yield "internet", next(filter(None, map(host_of, arguments)), "a repository")
    for word in arguments:
        if host := host_of(word):
            yield "internet", host
        elif word.startswith(_SYSTEM_FILES):
            yield "file", word


def _packages(arguments: Sequence[str]) -> Iterator[Use]:
    """Yields the packages to install, except files; if names are missing, as with a listing, packages in general."""
    words = [word for word in arguments[arguments.index("install") + 1 :] if not word.startswith("-")]
    named = [word for word in words if not word.endswith((".whl", ".tar.gz", ".zip", ".deb"))]
    found = [name[0] for word in named if (name := _PACKAGE.match(word)) and "://" not in word]
    yield from (("package", name) for name in found)
    if not words or len(found) < len(named):
        yield "internet", "packages"


def _destinations(arguments: Sequence[str]) -> Iterator[str]:
    for number, word in enumerate(arguments):
        if word.startswith("--dest="):
            yield word.removeprefix("--dest=")
        elif word in {"--dest", "-d"} and number + 1 < len(arguments):
            yield arguments[number + 1]


def _after_prefix(arguments: list[str]) -> list[str]:
    """Returns the command that `sudo` and similar programs start, after their options, variables and durations."""
    for number, word in enumerate(arguments):
        if not (word.startswith("-") or "=" in word or re.fullmatch(r"[\d.]+[smhd]?", word)):
            return arguments[number:]
    return []


@lru_cache(maxsize=1)
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def _commands(node: Node) -> Iterator[Node]:
    """Yields every simple command in order, including those inside substitutions."""
    stack = [node]
    while stack:
        found = stack.pop()
        if found.type == "command":
            yield found
        stack.extend(reversed(found.children))


def _word(node: Node) -> str:
    """Returns a word without its quotes; empty when its value is only known at run time."""
    text = (node.text or b"").decode(errors="replace")
    if node.type == "raw_string":
        return text[1:-1]
    if node.type == "string":
        return text[1:-1].replace('\\"', '"')
    if node.type in {"command_name", "word", "number", "concatenation"}:
        return text.replace("\\ ", " ")
    return ""
