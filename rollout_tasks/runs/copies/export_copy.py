"""Puts a complete export at a URL, in place of an earlier one of its format."""

from __future__ import annotations

from pathlib import Path

from rollout_tasks.errors import UserError
from rollout_tasks.runs.copies import names
from rollout_tasks.runs.copies.local_folder import LocalFolder
from rollout_tasks.runs.copies.remote_copy import RemoteCopy
from rollout_tasks.runs.copies.remote_folder import RemoteFolder


def copy_export(folder: Path, kind: str, remote: RemoteFolder) -> None:
    """Sends what an export wrote; what is there already is not sent again.

    Args:
        folder: The folder that the export wrote to, and nobody else.
        kind: The export's format.
        remote: Where it goes; may have other exports.

    Raises:
        UserError: There is something else at the URL, or a file's name cannot be there.
        RemoteError: The URL refuses, or cannot be reached for too long.
        OSError: A file cannot be read.
    """
    check_place(copy := RemoteCopy(remote))
    with LocalFolder(folder) as local:
        if local.oddities_below(""):
            raise UserError(f"the export {kind} has files whose names are too long for a URL: name a folder with --to")
        files = [local.hashed(name) for name in local.names_below("")]
        copy.replace(names.EXPORTS + kind, files, local, mirror=True)


def check_place(copy: RemoteCopy) -> None:
    """Checks that there are only exports at a URL.

    Raises:
        UserError: There is something else.
    """
    if copy.is_foreign or any(not unit.startswith(names.EXPORTS) for unit in copy.manifests):
        raise UserError(f"--to: {copy.remote.url} has files that no export wrote: name another folder")
