"""Gives the newest checkpoint of a folder to the servers of a model pool."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import redis

from rollout_tasks.errors import UserError
from rollout_tasks.models.pool.reloads import ENDS, Reload, Reloads, Stage


class Checkpoints:
    """The checkpoints that a trainer writes to a folder, each a folder of its own.

    A folder whose name begins with a dot is one that is still being written: the trainer renames it when it is complete.
    """

    def __init__(self, folder: Path, pool: str, client: redis.Redis) -> None:
        """Reads nothing yet.

        Args:
            folder: The folder, which the machines with the servers see under the same path.
            pool: The model pool.
            client: The pool's Redis.
        """
        self._folder = folder.resolve()
        self._reloads = Reloads(client, pool)
        self._asked: Reload | None = None

    def newest(self) -> Path | None:
        """Returns the newest checkpoint: that with the highest number in its name, or else the last one that was written.

        Raises:
            UserError: The folder cannot be read.
        """
        try:
            ages = {path: _age(path) for path in self._folder.iterdir() if path.name[0] != "."}
        except FileNotFoundError:  # the trainer has not made it yet
            return None
        except OSError as error:
            raise UserError(f"--checkpoints: {self._folder}: {error.strerror}") from error
        complete = {path: age for path, age in ages.items() if age is not None}
        return max(complete, key=lambda path: complete[path], default=None)

    def look(self) -> str:
        """Asks for the newest checkpoint's weights unless that was done, by whomever; returns a sentence if it was not.

        Raises:
            redis.RedisError: Redis does not answer.
            UserError: The folder cannot be read, or a checkpoint's name cannot be stored.
        """
        newest = self.newest()
        wanted = self._reloads.wanted()
        if newest is None or (wanted is not None and wanted.checkpoint == str(newest)):
            self._asked = wanted
            return ""
        try:
            self._asked = self._reloads.ask(str(newest), newest.name)
        except ValueError as error:
            raise UserError(f"--checkpoints: {newest}: {error}") from error
        return f"asked the servers for the weights of {newest.name}"

    def progress(self) -> str:
        """Returns how far the servers are with the checkpoint, as a clause; empty if none was asked for.

        Raises:
            redis.RedisError: Redis does not answer.
        """
        if self._asked is None:
            return ""
        told = self._reloads.progress(self._asked)
        stages = Counter(one.stage for one in told.values())
        done, under_way = stages[Stage.DONE], sum(count for stage, count in stages.items() if stage not in ENDS)
        failed = sum(stages.values()) - done - under_way
        text = f"{self._asked.weight_version}: {done} of {sum(stages.values())} servers have it"
        return f"{text}, {failed} could not load it" if failed else text


def _age(path: Path) -> tuple[list[int], float] | None:
    """Returns what orders a checkpoint among others; None if it is none, or is being removed."""
    try:
        written = path.stat().st_mtime
        is_complete = (path / "config.json").is_file()
    except OSError:
        return None
    return ([int(number) for number in re.findall(r"[0-9]{1,18}", path.name)], written) if is_complete else None
