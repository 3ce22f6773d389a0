"""What a run's folder says of the run itself: `run.json`, its configuration, and `items.jsonl`, what it rolls out."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmark.items import Item
from benchmark.whole_file import remove_leftovers, sync_folder, write_whole
from rollout_tasks import registry
from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.errors import UserError
from rollout_tasks.model_config import POOL_SCHEME
from rollout_tasks.runs.provenance import provenance
from rollout_tasks.runs.stored_profile import check_stored

_RESERVE_BYTES = 16 << 20
"""Free space that a run needs to begin."""
_NEW = ".new-run"
"""How the name of a run's folder ends that is not described yet; it begins with a dot, as no run's does."""
_ABANDONED_SECONDS = 3600.0
"""A folder that has been new for longer was left by a killed process: to describe a run takes seconds."""
_NOT_EMPTY = frozenset({errno.EEXIST, errno.ENOTEMPTY})
"""Errors of renaming a folder to where another one is."""


class RunDescription:
    """The description of one run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "run.json"
        self._items = folder / "items.jsonl"

    def create(
        self,
        config: RunConfig,
        items: Iterable[Item],
        *,
        data_path: str,
        data_name: str,
        left_out: Sequence[str] = (),
        doubted: Sequence[str] = (),
        images: Sequence[str] = (),
        embedded: bool | None = None,
        asks_model: bool = True,
    ) -> None:
        """Makes the folder with run.json and items.jsonl: with both, or not at all.

        Args:
            config: The run's configuration.
            items: The run's items.
            data_path: Where the items came from.
            data_name: The benchmark's name.
            left_out: A sentence for each item of the data that the run leaves out.
            doubted: A sentence for each item whose score cannot be relied on.
            images: The images of the desktops.
            embedded: Whether the run is embedded; None if that is not known.
            asks_model: Whether any rollout, or the metric, asks a model.

        Raises:
            UserError: The folder exists already, cannot be written, or its disk is full.
        """
        above = self._folder.parent
        try:
            above.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--output-dir: {above} cannot be made: {error.strerror}") from error
        if os.path.lexists(self._folder):
            raise self._taken()
        made = above / f".{self._folder.name}.{secrets.token_hex(4)}{_NEW}"
        try:
            made.mkdir()
            _remove_abandoned(made)
            _prove_space(made)
            lines = "".join(json.dumps(item.as_dict(), ensure_ascii=False) + "\n" for item in items)
            write_whole(made / self._items.name, lines)
            document = {
                "run_id": self._folder.name,
                "benchmark": {
                    "name": data_name,
                    "path": data_path,
                    "left_out": list(left_out),
                    "doubted": list(doubted),
                    "items_sha256": hashlib.sha256(lines.encode()).hexdigest(),
                },
                "made_by": provenance(),
                "images": list(images),
                "embedded": embedded,
                "asks_model": asks_model,
                "environments": sorted({registry.environment_name(item, config) for item in items}),
                "config": config.model_dump(mode="json"),
            }
            write_whole(made / self._path.name, _text_of(document))
            made = made.rename(self._folder)
            with suppress(PermissionError):  # of a folder that may be written, but not read
                sync_folder(above)
        except BaseException as error:
            shutil.rmtree(made, ignore_errors=True)
            if isinstance(error, OSError):
                if error.errno in _NOT_EMPTY:
                    raise self._taken() from error
                raise UserError(f"--output-dir: {above} cannot be written: {error.strerror}") from error
            raise

    def document(self) -> dict[str, Any]:
        """Returns the contents of run.json.

        Raises:
            UserError: It is missing or broken.
        """
        _check_file(self._path)
        try:
            values = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise UserError(f"{self._folder} is not a run's folder: it has no run.json") from error
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{self._path} cannot be read: {error}") from error
        if not isinstance(values, dict) or not isinstance(values.get("config"), dict):
            raise UserError(f"{self._path} is not a run's description: it has no config")
        return values

    def record_resume(self, config: RunConfig, *, embedded: bool) -> None:
        """Records what a resumed run may change: its models' endpoints and prices, who answers there, what it may cost, and where.

        The description keeps the earlier endpoints.

        Args:
            config: The run's configuration now.
            embedded: Whether the run is embedded now.

        Raises:
            UserError: The description is missing or broken, or cannot be written.
        """
        document = self.document()
        before = document["config"].setdefault("model", {})
        names = ("base_url", "pool", "scripted", "prompt_price", "completion_price")
        model = {name: getattr(config.model, name) for name in names}
        if model["base_url"] is None and model["pool"] is None:
            model["base_url"] = before.get("base_url")
        if (model["base_url"], model["pool"]) != (before.get("base_url"), before.get("pool")):
            earlier = before.get("base_url") if before.get("pool") is None else f"{POOL_SCHEME}{before['pool']}"
            document["earlier_base_urls"] = [*document.get("earlier_base_urls", []), earlier]
        changed = document["config"] | {"model": before | model, "max_cost": config.max_cost}
        if config.model_roles:
            changed["model_roles"] = [role.model_dump(mode="json") for role in config.model_roles]
            self._keep_earlier_endpoints(document, config)
        if changed == document["config"] and embedded is document.get("embedded"):
            return
        document |= {"config": changed, "embedded": embedded}
        try:
            remove_leftovers(self._path)
            write_whole(self._path, _text_of(document))
        except OSError as error:
            raise UserError(f"{self._path} cannot be written: {error.strerror}") from error

    def _keep_earlier_endpoints(self, document: dict[str, Any], config: RunConfig) -> None:
        """Adds the endpoints that further models had before to a description."""
        before = {role["role"]: role["model"] for role in document["config"].get("model_roles", [])}
        for role in config.model_roles:
            model = before.get(role.role)
            if model is None or (model.get("base_url"), model.get("pool")) == (role.model.base_url, role.model.pool):
                continue
            earlier = document.setdefault("earlier_role_base_urls", {}).setdefault(role.role, [])
            earlier.append(model.get("base_url") if model.get("pool") is None else f"{POOL_SCHEME}{model['pool']}")

    def config(self) -> RunConfig:
        """Returns the run's configuration.

        Raises:
            UserError: The description is missing or broken, or a newer version made it.
        """
        values = self.document()["config"]
        if isinstance(values.get("model"), dict):  # versions without this option sent all pictures
            values["model"].setdefault("max_images", None)
        config = parse_config(values, where=str(self._path))
        try:
            check_stored(config)
        except UserError as error:
            raise UserError(f"{self._path}: {error}") from error
        return config

    def embedded(self) -> bool | None:
        """Returns whether the run is, or was last, an embedded one; None in folders of earlier versions.

        Raises:
            UserError: The description is missing or broken.
        """
        value = self.document().get("embedded")
        return value if isinstance(value, bool) else None

    def answerer(self) -> str | None:
        """Returns what answers in the run, for reports: its model's name, or ``scripted``; None if nothing is asked.

        Raises:
            UserError: The description is missing or broken.
        """
        return self.config().model.answerer if self.document().get("asks_model", True) else None

    def agent(self) -> str | None:
        """Returns the name of the run's agent, for reports, with its profile's version and its further models.

        None if it is not known here.

        Raises:
            UserError: The description is missing or broken.
        """
        config = self.config()
        profile = config.profile
        if profile is not None:
            return f"{profile.get('name')} {profile.get('version')}"
        if config.agent is not None:
            roles = "; ".join(f"{role.role}: {role.model.name}, {role.profile_name}" for role in config.model_roles)
            return f"{config.agent} ({roles})" if roles else config.agent
        with suppress(UserError):  # its package may not be installed here
            return ", ".join(sorted({registry.environment(name).default_agent for name in self.environments()}))
        return None

    def environments(self) -> list[str]:
        """Returns the environments of the run's items, which may have others than the run's own, for reports.

        Raises:
            UserError: The description is missing or broken.
        """
        stored = self.document().get("environments")  # runs of earlier versions do not have it
        return [str(name) for name in stored] if isinstance(stored, list) and stored else [self.config().env_mode]

    def items(self) -> list[Item]:
        """Returns the run's items, in the order of the benchmark.

        Raises:
            UserError: items.jsonl is missing or broken.
        """
        return list(self.each_item())

    def each_item(self) -> Iterator[Item]:
        """Yields the run's items one by one, for runs that are too large for memory.

        Raises:
            UserError: items.jsonl is missing or broken.
        """
        number = 0
        _check_file(self._items)
        try:
            with self._items.open(encoding="utf-8", newline="\n") as file:
                for number, line in enumerate(file, start=1):
                    try:
                        yield _item_of(line)
                    except (ValueError, RecursionError) as error:  # includes BenchmarkError
                        raise UserError(f"{self._items}, line {number}: {error}") from error
        except OSError as error:
            raise UserError(f"{self._items} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{self._items} cannot be read: {error}") from error
        if not number:
            raise UserError(f"{self._items} holds no item")

    def count_items(self) -> int:
        """Returns how many items the run has.

        Raises:
            UserError: items.jsonl cannot be read.
        """
        _check_file(self._items)
        try:
            with self._items.open("rb") as file:
                return sum(1 for _ in file)
        except OSError as error:
            raise UserError(f"{self._items} cannot be read: {error.strerror}") from error

    def _taken(self) -> UserError:
        return UserError(
            f"--run-id: {self._folder} exists already; take another name, or continue it with rollouts resume"
        )


def remove_unmade(folder: Path) -> None:
    """Removes what killed submissions of a run left beside its folder's place; for whoever knows that none goes on."""
    for other in folder.parent.glob(f".{glob.escape(folder.name)}.*{_NEW}"):
        shutil.rmtree(other, ignore_errors=True)


def _remove_abandoned(new: Path) -> None:
    """Removes what killed submissions left beside a new folder; compares only times of their file system."""
    made = new.stat().st_mtime
    for other in new.parent.glob(f".*{_NEW}"):
        with suppress(OSError):
            if made - other.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(other, ignore_errors=True)


def _prove_space(folder: Path) -> None:
    probe, link = folder / ".space", folder / ".link"
    try:
        with probe.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, _RESERVE_BYTES)
        link.hardlink_to(probe)
    except OSError as error:
        if error.errno in {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}:
            error.strerror = "its file system has no hard links, by which each rollout gets one verdict only"
        raise
    finally:
        probe.unlink(missing_ok=True)
        link.unlink(missing_ok=True)


def _check_file(path: Path) -> None:
    """Refuses what is there and no file: of a pipe, reading would never begin, and of a device never end."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} cannot be read: it is no plain file")


def _text_of(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _item_of(line: str) -> Item:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return Item.from_dict(value)
