"""Makes an OSWorld task for desktop-env from an item, and checks it before anything is enqueued."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from copy import deepcopy
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from benchmark.items import Item
from rollout_tasks.environments.base import ItemUnsupported
from rollout_tasks.environments.osworld.desktop_env_names import DesktopEnvNames, Step, desktop_env_names

TASK_ID = "task"
"""The id of every task for desktop-env, which makes a folder of that name: an item's id may be any text."""
OWN_SETTINGS: Mapping[str, type] = {"snapshot": str, "proxy": bool, "fixed_ip": bool}
"""Settings in an item's env_config that override the run's options."""
REFUSED_STEPS = {
    "upload_file": "would read a file on the worker; give it a URL and use download",
    "proxy": "belongs to no task; set proxy instead",
}

ACCOUNTS = "evaluation_examples/settings/"
"""Where OSWorld's tasks expect the settings of accounts, below the folder that a worker runs in."""
_NO_NAMES = frozenset({"", ".", ".."})
"""What may be between two slashes but names no file: a path that ends so leads to the folder, or to the one above."""
_TIME_FORMAT = re.compile(r"(%[YmdHMSfjpBbAa]|[\w .-])*")


class TaskError(ValueError):
    """A task is wrong; the message says what is wrong, and begins with the field."""


class TaskUnsupported(TaskError, ItemUnsupported):
    """The installed desktop-env lacks something that the task names; other tasks may still work."""


def task_config(item: Item) -> dict[str, Any]:
    """Returns the task as `DesktopEnv.reset` takes it.

    Raises:
        TaskUnsupported: The installed desktop-env lacks one of its setup steps, getters or metrics.
        TaskError: The item is not a valid task.
    """
    metadata, settings = item.metadata, item.env_config
    task = {
        "id": TASK_ID,
        "instruction": item.question,
        "config": deepcopy(metadata.get("config") or []),
        "evaluator": deepcopy(metadata.get("evaluator")),
        "snapshot": settings.get("snapshot", metadata.get("snapshot")),
        "proxy": bool(settings.get("proxy", metadata.get("proxy", False))),
        "fixed_ip": bool(settings.get("fixed_ip", metadata.get("fixed_ip", False))),
    }
    _check_settings(item.env_config)
    names = desktop_env_names()
    _check_steps("config", task["config"], names)
    _check_evaluator(task["evaluator"], names)
    return task


def steps_of(task: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the setup steps before the episode, then those before its evaluation."""
    return [*task["config"], *(task["evaluator"].get("postconfig") or [])]


def getters_of(evaluator: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the evaluator's getters, of results and of what is expected."""
    return [getter for side in ("result", "expected") for getter in _listed(evaluator.get(side)) if getter]


def results_of(evaluator: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns only the evaluator's getters of results."""
    return [getter for getter in _listed(evaluator.get("result")) if getter]


def metrics_of(evaluator: Mapping[str, Any]) -> list[str]:
    """Returns the names of the evaluator's metrics."""
    return [str(name) for name in _listed(evaluator["func"])]


def file_names(evaluator: Mapping[str, Any]) -> list[str]:
    """Returns the names under which the evaluator's getters store the files they fetch, each once."""
    return sorted({name for getter in getters_of(evaluator) for name in _listed(getter.get("dest", []))})


def cloud_files(getter: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns URL and name of each file that a ``cloud_file`` getter downloads."""
    return list(zip(_listed(getter["path"]), _listed(getter["dest"]), strict=False))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _check_settings(settings: Mapping[str, Any]) -> None:
    for name, kind in OWN_SETTINGS.items():
        if name in settings and not isinstance(settings[name], kind):
            words = "true or false" if kind is bool else "text"
            raise TaskError(f"env_config.{name} must be {words}, got {settings[name]!r}")


def _check_steps(place: str, steps: Any, names: DesktopEnvNames | None) -> None:
    if not isinstance(steps, list):
        raise TaskError(f"{place} must be a list of setup steps, got {_shown(steps)}")
    for number, step in enumerate(steps, 1):
        where = f"{place}, step {number}"
        if not isinstance(step, dict) or not isinstance(step.get("type"), str):
            raise TaskError(f"{where} must be an object with a type, got {_shown(step)}")
        parameters = step.setdefault("parameters", {})
        if not isinstance(parameters, dict):
            raise TaskError(f"{where}: parameters must be an object, got {_shown(parameters)}")
        if step["type"] in REFUSED_STEPS:
            raise TaskError(f"{where}: {step['type']} {REFUSED_STEPS[step['type']]}")
        if names is not None:
            _check_parameters(f"{where}: {step['type']}", step["type"], parameters, names.steps)
        _check_files(where, step["type"], parameters)


def _check_parameters(where: str, kind: str, given: Mapping[str, Any], steps: Mapping[str, Step]) -> None:
    step = steps.get(kind)
    if step is None:
        raise TaskUnsupported(
            f"{where} is not a setup step; known: {', '.join(sorted(steps.keys() - REFUSED_STEPS.keys()))}"
        )
    if missing := sorted(step.required - given.keys()):
        raise TaskError(f"{where} lacks the parameter {missing[0]}")
    if not step.any_other and (extra := sorted(given.keys() - step.required - step.optional)):
        raise TaskError(f"{where} has no parameter {extra[0]}")


def _check_files(where: str, kind: str, parameters: Mapping[str, Any]) -> None:
    if kind == "download":
        files = parameters.get("files")
        if not isinstance(files, list):
            raise TaskError(f"{where}: files must be a list, got {_shown(files)}")
        for file in files:
            if not isinstance(file, dict):
                raise TaskError(f"{where}: a file must be an object with url and path, got {_shown(file)}")
            _check_url(where, file.get("url"))
            if not _names_a_file(file.get("path")):
                raise TaskError(f"{where}: path must name a file, got {_shown(file.get('path'))}")
    for stream in ("stdout", "stderr"):
        if parameters.get(stream):
            _check_name(f"{where}: {stream}", parameters[stream])
    _check_accounts(where, parameters)


def _check_evaluator(evaluator: Any, names: DesktopEnvNames | None) -> None:
    if not isinstance(evaluator, dict):
        raise TaskError(f"evaluator must be an object, got {_shown(evaluator)}")
    functions = _listed(evaluator.get("func"))
    if not functions or not all(isinstance(name, str) for name in functions):
        raise TaskError(f"evaluator.func must name a metric or several, got {_shown(evaluator.get('func'))}")
    if names is not None and (unknown := [name for name in functions if name not in names.metrics]):
        raise TaskUnsupported(f"evaluator.func: desktop-env has no metric {unknown[0]!r}")
    if evaluator.get("conj", "and") not in ("and", "or"):
        raise TaskError(f"evaluator.conj must be 'and' or 'or', got {_shown(evaluator['conj'])}")
    _check_steps("evaluator.postconfig", evaluator.get("postconfig") or [], names)
    for side in ("result", "expected", "options"):
        _check_side(side, evaluator, names)
    if functions != ["infeasible"] and not evaluator.get("result"):
        raise TaskError(f"evaluator.result is missing: what does {functions[0]} look at?")


def _check_side(side: str, evaluator: Mapping[str, Any], names: DesktopEnvNames | None) -> None:
    value = evaluator.get(side)
    if not value:
        return
    several = isinstance(evaluator["func"], list)
    if several != isinstance(value, list) or (several and len(value) != len(evaluator["func"])):
        wanted = f"a list of {len(evaluator['func'])}, one for each metric" if several else "an object"
        raise TaskError(f"evaluator.{side} must be {wanted}, got {_shown(value)}")
    for entry in _listed(value):
        if entry and not isinstance(entry, dict):
            raise TaskError(f"evaluator.{side} must be an object, got {_shown(entry)}")
        if entry and side != "options":
            _check_getter(f"evaluator.{side}", entry, names)


def _check_getter(where: str, getter: Mapping[str, Any], names: DesktopEnvNames | None) -> None:
    kind = getter.get("type")
    if not isinstance(kind, str):
        raise TaskError(f"{where} must have a type, got {_shown(getter)}")
    if names is not None and kind not in names.getters:
        raise TaskUnsupported(f"{where}: desktop-env has no getter {kind!r}")
    if kind == "cloud_file":
        wanted = list if getter.get("multi") else str
        if not all(isinstance(getter.get(one), wanted) for one in ("path", "dest")):
            words = "lists" if getter.get("multi") else "text, or lists with multi"
            raise TaskError(f"{where}: path and dest must be {words}, got {_shown(getter)}")
        if len(_listed(getter["path"])) != len(_listed(getter["dest"])):
            raise TaskError(f"{where}: path and dest must be lists of the same length, got {_shown(getter)}")
        for url in _listed(getter.get("path")):
            _check_url(where, url)
    if kind == "cache_file":
        _check_name(f"{where}: path", getter.get("path"))
    for name in _listed(getter.get("dest", [])):
        _check_name(f"{where}: dest", name)
        if "/" in name:  # a folder that desktop-env would not make: the getter would find nothing
            raise TaskError(f"{where}: dest must be a file's name without a folder, got {_shown(name)}")
    if not _TIME_FORMAT.fullmatch(str(getter.get("time_format", ""))):
        raise TaskError(f"{where}: time_format must be part of a file's name, got {_shown(getter['time_format'])}")
    _check_accounts(where, getter)


def _check_accounts(where: str, parameters: Mapping[str, Any]) -> None:
    """Checks that account settings are the user's own files: libraries may run code that such files contain."""
    if "settings_file" not in parameters:
        return
    path = parameters["settings_file"]
    if not isinstance(path, str) or "\0" in path or not path.startswith(ACCOUNTS) or _NO_NAMES & {*path.split("/")}:
        raise TaskError(f"{where}: settings_file must be in {ACCOUNTS}, got {_shown(path)}")


def _check_url(where: str, url: Any) -> None:
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        fine = parts is not None and parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        fine = False
    if not fine:
        raise TaskError(f"{where}: url must begin with http:// or https://, got {_shown(url)}")


def _check_name(where: str, name: Any) -> None:
    """Checks that a file that desktop-env writes on the worker stays in the attempt's folder."""
    if not _names_a_file(name):
        raise TaskError(f"{where} must name a file, got {_shown(name)}")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise TaskError(f"{where} must stay in the task's folder, got {_shown(name)}")


def _names_a_file(path: Any) -> bool:
    """Returns whether a path, split as desktop-env does, ends with a name."""
    return isinstance(path, str) and "\0" not in path and posixpath.basename(path) not in _NO_NAMES


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
