"""Scores a task by its evaluator, and decides which of the evaluator's failures are the agent's.

A result that is missing, or cannot be read as what it should be, is a wrong result: 0. So is one that only
a program which was closed could have given, and one for which a metric lacks what the reference has. Any other failure says nothing
about the agent and is raised.
"""

from __future__ import annotations

import logging
import os
import posixpath
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from rollout_tasks.environments.osworld import vm_client
from rollout_tasks.environments.osworld.attached_desktop import Desktop
from rollout_tasks.environments.osworld.damaged_files import cannot_be_read, may_be_damage
from rollout_tasks.environments.osworld.desktop_env_import import LOGGER
from rollout_tasks.environments.osworld.program_tests import command_for_tests, score_of
from rollout_tasks.environments.osworld.task import file_names, metrics_of
from rollout_tasks.environments.osworld.vm_client import REQUESTS, vm_client_of

logger = logging.getLogger(f"{LOGGER}.scoring")

TEST_SUITE_METRIC = "check_python_file_by_test_suite"
"""desktop-env runs the agent's program in this process; this module runs it in the guest."""
_READERS = frozenset(
    {
        "audio_in_slide",
        "background_image_in_slide",
        "bookmarks",
        "cache_file",
        "content_from_vm_file",
        "shortcuts_on_desktop",
        "vlc_config",
    }
)
"""Getters that read files of the guest and raise errors about them; others return None, or ask for more than files."""
_GIVEN, _MISSING = 200, 404
_NO_RESULT = object()
_ROUNDING = 1e-6


def score(desktop: Desktop, task: Mapping[str, Any]) -> float:
    """Returns the task's score; one that only rounding puts outside [0, 1] is moved into it.

    Raises:
        ValueError: The evaluator gives no number.
        Exception: Anything else that goes wrong in a getter or metric.
        VMUnreachable: The VM is gone.
    """
    names = metrics_of(task["evaluator"])
    if names != ["infeasible"]:
        metrics = desktop.metric if isinstance(desktop.metric, list) else [desktop.metric]
        watched = [_watched(desktop, task, *pair) for pair in zip(names, metrics, strict=True)]
        desktop.metric = watched if isinstance(desktop.metric, list) else watched[0]
        desktop.result_getter = _each(desktop.result_getter, lambda getter: _result_of(desktop, getter))
        desktop.expected_getter = _each(desktop.expected_getter, lambda getter: _answered(desktop, getter))
    value = desktop.score()
    if value is None:
        raise ValueError(f"the evaluator {', '.join(names)} gave no score")
    number = float(value)
    return min(max(number, 0.0), 1.0) if -_ROUNDING < number < 1 + _ROUNDING else number


def _watched(desktop: Desktop, task: Mapping[str, Any], name: str, metric: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the metric, with its errors about a missing or broken result turned into a score of 0."""
    if name == TEST_SUITE_METRIC:

        def metric(_result: Any, test_file: str | None, **options: Any) -> float:
            return _tests_in_guest(desktop, task, test_file, str(options.get("test_function_name", "test")))

    def watched(result: Any, *arguments: Any, **options: Any) -> Any:
        if result is _NO_RESULT:
            return 0.0
        try:
            return metric(result, *arguments, **options)
        except Exception as error:
            if _is_missing(result):
                logger.error("%s: there is no result: %s", name, error)
            elif _is_to_blame(result, error, name, metric, arguments, options):
                logger.error("%s: the result cannot be compared: %s: %s", name, type(error).__name__, error)
            else:
                raise
        return 0.0

    return watched


def _is_to_blame(
    result: Any,
    error: Exception,
    name: str,
    metric: Callable[..., Any],
    arguments: Sequence[Any],
    options: Mapping[str, Any],
) -> bool:
    """Returns whether a metric failed because of the result, not because of the reference, the task or the machine.

    Where both are files, that is seen: it fails on the result again, and not on the reference in the result's place.
    """
    unreadable = cannot_be_read(error, name)
    reference = _in_its_place(result, arguments)
    if reference is None or (unreadable and _ending(reference) != _ending(result)):
        return unreadable
    return (
        (unreadable or may_be_damage(error))
        and not _succeeds(metric, result, arguments, options)
        and _succeeds(metric, reference, arguments, options)
    )


def _in_its_place(result: Any, arguments: Sequence[Any]) -> Any:
    """Returns the reference, if it and the result are files, or lists of files."""
    reference = arguments[0] if arguments else None
    if isinstance(result, list) and isinstance(reference, list):
        return reference if all(map(_is_file, [*result, *reference])) else None
    return reference if _is_file(result) and _is_file(reference) else None


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and os.path.isfile(value)  # noqa: PTH113 - unlike Path, it takes any text


def _succeeds(metric: Callable[..., Any], result: Any, arguments: Sequence[Any], options: Any) -> bool:
    try:
        metric(result, *arguments, **options)
    except Exception:  # noqa: BLE001 - other code, which may raise anything
        return False
    return True


def _ending(files: Any) -> str:
    return Path(files[0] if isinstance(files, list) else files).suffix.lower()


Getter = Callable[[Any, Any], Any]


def _each(getters: Any, wrap: Callable[[Getter], Getter]) -> Any:
    """Wraps a getter, or several; a task may have none for a metric."""
    if isinstance(getters, list):
        return [getter and wrap(getter) for getter in getters]
    return getters and wrap(getters)


def _result_of(desktop: Desktop, getter: Getter) -> Getter:
    """Returns the getter, with its errors about a missing or broken result turned into `_NO_RESULT`."""
    get = _answered(desktop, getter)

    def get_result(env: Any, parameters: Any) -> Any:
        kind = parameters["type"]
        before = len(desktop.controller.file_answers)
        try:
            try:
                return get(env, _Parameters(parameters))
            except requests.ConnectionError as error:
                if not _is_of_a_program(desktop, error):
                    raise
                time.sleep(vm_client.REFUSED_AGAIN_SECONDS)
                return get(env, _Parameters(parameters))
        except requests.RequestException as error:
            if not _is_of_a_program(desktop, error):
                raise
            desktop.vm.probe("a program of the task does not answer")
            logger.error("%s: the program that would tell the result accepts no connection: %s", kind, error)
        except Exception as error:
            answers = desktop.controller.file_answers
            if not _is_about_files(kind, error, answers if kind == "cache_file" else answers[before:]):
                raise
            logger.error("%s: the result is missing or cannot be read: %s: %s", kind, type(error).__name__, error)
        return _NO_RESULT

    return get_result


def _answered(desktop: Desktop, getter: Getter) -> Getter:
    """Returns the getter, which raises if the guest's server did not answer: desktop-env takes that for no file."""

    def get(env: Any, parameters: Any) -> Any:
        desktop.controller.unanswered = None
        value = getter(env, parameters)
        if desktop.controller.unanswered is not None:
            raise desktop.controller.unanswered
        return value

    return get


class _IncompleteTask(Exception):
    """A task's getter lacks a parameter."""


class _Parameters(dict[str, Any]):
    """A getter's parameters. One that is missing is not an error about the result, whatever the getter reads."""

    def __missing__(self, name: str) -> Any:
        raise _IncompleteTask(f"the evaluator's {self.get('type')} lacks {name!r}")


def _is_of_a_program(desktop: Desktop, error: requests.RequestException) -> bool:
    """Returns whether nobody accepts connections at a port of the guest that is not its server's."""
    if not isinstance(error, requests.ConnectionError) or isinstance(error, requests.Timeout):
        return False
    url = str(getattr(error.request, "url", None) or "")
    return vm_client_of(url) is desktop.vm and urlsplit(url).netloc != urlsplit(desktop.vm.origin).netloc


def _is_about_files(kind: str, error: Exception, answers: Sequence[int | None]) -> bool:
    """Returns whether a getter failed because of files that the guest gave, or said not to have.

    Args:
        kind: The getter.
        error: What it raised.
        answers: Statuses of the guest's answers when it was asked for these files; None where none came.
    """
    if kind not in _READERS or not answers or not set(answers) <= {_GIVEN, _MISSING}:
        return False
    if kind == "cache_file" and _MISSING not in answers:  # it should be there
        return False
    return cannot_be_read(error) or (may_be_damage(error) and not isinstance(error, OSError))


def _is_missing(result: Any) -> bool:
    """Returns whether the guest had no such file, or printed nothing."""
    return result is None or (isinstance(result, list) and None in result)


def _tests_in_guest(desktop: Desktop, task: Mapping[str, Any], test_file: str | None, function: str) -> float:
    """Runs a test suite on the agent's files in the guest, as they may contain anything."""
    if test_file is None:
        return 0.0
    folder = Path(desktop.cache_dir)
    guest_folder = "/tmp/rollout-tests"  # noqa: S108
    desktop.controller.execute_python_command(f"import os; os.makedirs({guest_folder!r}, exist_ok=True)")
    for name in file_names(task["evaluator"]):
        if (folder / name).is_file():
            _upload(desktop, folder / name, posixpath.join(guest_folder, name))
    test = posixpath.join(guest_folder, Path(test_file).name)
    answer = desktop.controller.execute_python_command(f"\n{command_for_tests(guest_folder, test, function)}")
    score = score_of(answer["output"])
    if score is None:
        logger.error("the tests did not end: %s", answer["error"][-1000:])
        return 0.0
    return score


def _upload(desktop: Desktop, file: Path, target: str) -> None:
    with file.open("rb") as content:
        response: requests.Response = REQUESTS.post(
            f"{desktop.controller.http_server}/setup/upload",
            data={"file_path": target},
            files={"file_data": (file.name, content)},
        )
    response.raise_for_status()
