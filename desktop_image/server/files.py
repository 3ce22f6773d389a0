"""Copies files in and out of the guest, and lists its folders."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import requests
from flask import Blueprint, Response, jsonify, request, send_file

from . import request_fields
from .problems import Problem, bad_request, not_found, too_late

blueprint = Blueprint("files", __name__)

DOWNLOAD_SECONDS = 300.0
LISTING_SECONDS = 30.0
CHUNK = 1024 * 1024


@blueprint.post("/file")
def read_file() -> Response:
    """Returns the content of a file."""
    path = request_fields.form_path("file_path")
    if not os.path.isfile(path):
        raise not_found(f"there is no file {path}")
    try:
        return send_file(os.path.abspath(path), as_attachment=True, download_name=os.path.basename(path), max_age=0)
    except OSError as error:
        raise Problem(f"cannot read {path}: {error.strerror}") from error


@blueprint.post("/setup/upload")
def upload() -> str:
    """Stores an uploaded file under its path."""
    path = request_fields.form_path("file_path")
    given = request.files.get("file_data")
    if given is None:
        raise bad_request("/setup/upload wants a file 'file_data'")
    with _whole_file(path) as file:
        given.save(file, CHUNK)
    return "File Uploaded"


@blueprint.post("/setup/download_file")
def download_file() -> str:
    """Fetches a URL, if the guest has a network."""
    values = request_fields.body()
    url, path = request_fields.text(values, "url"), request_fields.expanded(request_fields.text(values, "path"))
    deadline = time.monotonic() + DOWNLOAD_SECONDS
    try:
        with requests.get(url, stream=True, timeout=20) as answer, _whole_file(path) as file:
            answer.raise_for_status()
            for part in answer.iter_content(CHUNK):
                file.write(part)
                if time.monotonic() > deadline:
                    raise too_late(f"{url} was not loaded within {DOWNLOAD_SECONDS:g} s")
    except requests.RequestException as error:
        raise Problem(f"cannot load {url}: {error}") from error
    return "File downloaded successfully"


@blueprint.post("/list_directory")
def list_directory() -> Response:
    """Returns everything below a folder, as a tree."""
    path = request_fields.expanded(request_fields.text(request_fields.body(), "path"))
    if not os.path.isdir(path):
        raise not_found(f"there is no folder {path}")
    return jsonify(directory_tree=_tree(Path(path), time.monotonic() + LISTING_SECONDS))


@blueprint.post("/desktop_path")
def desktop_path() -> Response:
    """Returns the path of the user's desktop folder."""
    return jsonify(desktop_path=str(Path.home() / "Desktop"))


def _tree(path: Path, deadline: float) -> dict[str, Any]:
    if time.monotonic() > deadline:
        raise too_late(f"the folder has more than can be listed within {LISTING_SECONDS:g} s")
    tree: dict[str, Any] = {"type": "directory", "name": path.name, "children": []}
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError:
        return tree
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            tree["children"].append(_tree(Path(entry.path), deadline))
        else:
            tree["children"].append({"type": "file", "name": entry.name})
    return tree


class _whole_file:  # noqa: N801
    """A file that appears under its path only when it is whole."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def __enter__(self) -> Any:
        if self._path.is_dir():
            raise bad_request(f"{self._path} is a folder")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # In the same folder as the final file, so that renaming cannot fail half-way.
            self._file = tempfile.NamedTemporaryFile(dir=self._path.parent, prefix=".upload-", delete=False)
        except OSError as error:
            raise Problem(f"cannot write {self._path}: {error.strerror}") from error
        return self._file

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._file.close()
        if kind is not None:
            os.unlink(self._file.name)
            if isinstance(error, OSError) and not isinstance(error, requests.RequestException):
                raise Problem(f"cannot write {self._path}: {error.strerror}") from error
            return
        os.chmod(self._file.name, 0o664)
        os.replace(self._file.name, self._path)
