"""Scores a task by its evaluator, and decides which of the evaluator's failures are the agent's.

A result that is missing, or cannot be read as what it should be, is a wrong result: 0. Any other failure says nothing
about the agent and is raised.
"""

from __future__ import annotations

import json
import logging
import posixpath
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import requests
from lxml import etree
from PIL import UnidentifiedImageError

from rollout_tasks.environments.osworld.attached_desktop import Desktop
from rollout_tasks.environments.osworld.desktop_env_import import LOGGER
from rollout_tasks.environments.osworld.http_guard import REQUESTS
from rollout_tasks.environments.osworld.program_tests import command_for_tests, score_of
from rollout_tasks.environments.osworld.task import file_names, metrics_of

logger = logging.getLogger(f"{LOGGER}.scoring")

TEST_SUITE_METRIC = "check_python_file_by_test_suite"
"""desktop-env runs the agent's program in this process; this module runs it in the guest."""
_UNREADABLE: tuple[type[Exception], ...] = (
    UnidentifiedImageError,
    UnicodeDecodeError,
    etree.XMLSyntaxError,
    json.JSONDecodeError,
    zipfile.BadZipFile,
)
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
        try:
            return metric(result, *arguments, **options)
        except _UNREADABLE as error:
            logger.error("%s: the result cannot be read: %s", name, error)
        except Exception as error:
            if not _is_missing(result):
                raise
            logger.error("%s: there is no result: %s", name, error)
        return 0.0

    return watched


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
