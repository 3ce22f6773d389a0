"""A task's files from the internet: lists them, and puts them where desktop-env looks for them."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollout_tasks.environments.osworld.session_results import AttemptFiles
from rollout_tasks.environments.osworld.task import TASK_ID, cloud_files, getters_of, steps_of

EMPTY_HISTORY_URL = (
    "https://huggingface.co/datasets/xlangai/ubuntu_osworld_file_cache/resolve/main/chrome/"
    "44ee5668-ecd5-4366-a6ce-c1c9b8d4e938/history_empty.sqlite?download=true"
)
"""The file that desktop-env's step `update_browse_history` starts from."""


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A file that a setup step or a getter needs."""

    url: str
    name: str
    """Its path in the task's folder."""


def files_of(task: Mapping[str, Any]) -> list[TaskFile]:
    """Returns every file that setting up and evaluating a task needs, each once."""
    return list(dict.fromkeys(_files_of(task)))


def place_files(task: Mapping[str, Any], cache_dir: Path, files: AttemptFiles) -> None:
    """Puts all the task's files into its folder."""
    for file in files_of(task):
        files.place(file.url, cache_dir / TASK_ID / file.name)


def _files_of(task: Mapping[str, Any]) -> Iterator[TaskFile]:
    for step in steps_of(task):
        if step["type"] == "download":
            for file in step["parameters"]["files"]:
                name = f"{uuid.uuid5(uuid.NAMESPACE_URL, file['url'])}_{posixpath.basename(file['path'])}"
                yield TaskFile(file["url"], name)
        elif step["type"] == "update_browse_history":
            yield TaskFile(EMPTY_HISTORY_URL, "history_new.sqlite")
    for getter in getters_of(task["evaluator"]):
        if getter["type"] == "cloud_file":
            yield from (TaskFile(url, name) for url, name in cloud_files(getter))
