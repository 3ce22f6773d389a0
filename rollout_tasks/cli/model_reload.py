"""`rollouts model reload`: asks for new weights in a pool's servers, and tells how far each of them is."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import redis
import typer

from rollout_tasks.cli import program
from rollout_tasks.errors import UserError
from rollout_tasks.models.pool.reloads import ENDS, Progress, Reload, Reloads, Stage
from rollout_tasks.models.pool.replicas import Replicas

_LOOK_SECONDS = 0.5
_ABSENT_SECONDS = 180.0
"""How long a replica that left the pool may take to come back; a server that is started again takes minutes."""


def ask(
    replicas: Replicas, reloads: Reloads, checkpoint: str, version: str | None, *, in_flight: bool
) -> RequestedReload:
    """Asks for a checkpoint's weights.

    Raises:
        UserError: No replica can get them, or they cannot be named like that.
    """
    pool, there = replicas.pool, replicas.all()
    if not there:
        raise UserError(f"POOL: model pool {pool} has no replica")
    served = [one.replica_id for one in there if one.checkpoint is not None]
    if not served:
        raise UserError(
            f"POOL: model pool {pool} has attached servers only: whoever runs them gives them weights, and then"
            " rollouts model weights says so"
        )
    if silent := replicas.silent():
        come = "it comes" if len(silent) == 1 else "they come"
        program.tell(f"note: {', '.join(silent)} fell silent, and will get the weights if {come} back")
    folder = Path(checkpoint)
    if not folder.is_dir() and not folder.is_absolute():
        raise UserError(
            f"CHECKPOINT: there is no folder {checkpoint} here; name it as the machines with the servers do, from /"
        )
    try:
        reload = reloads.ask(
            str(folder.resolve()), folder.resolve().name if version is None else version, in_flight=in_flight
        )
    except ValueError as error:
        raise UserError(str(error)) from error
    return RequestedReload(replicas, reloads, reload, served)


class RequestedReload:
    """A change of weights that was asked for, and the replicas that are to get them."""

    def __init__(self, replicas: Replicas, reloads: Reloads, reload: Reload, served: Sequence[str]) -> None:
        self._replicas, self._reloads, self._reload, self._served = replicas, reloads, reload, served
        self._seen: dict[str, Progress] = {}
        self._absent_since: dict[str, float] = {}

    def follow(self, seconds: float, *, as_json: bool) -> None:
        """Tells how far each replica is, until all have ended.

        Raises:
            UserError: One of them has not got the weights, or did not say so in time.
            typer.Exit: The same, where JSON was printed.
        """
        try:
            why = self._until_over(seconds)
        except KeyboardInterrupt:
            program.tell(f"note: {self._goes_on()}")
            raise
        self._report(why, as_json=as_json)

    def _until_over(self, seconds: float) -> str:
        """Tells what happens until all have ended; returns why there is no use in waiting longer, if some have not."""
        deadline = time.monotonic() + seconds
        while left := self._left():
            try:
                if why := self._look(left):
                    return why
            except redis.RedisError as error:
                program.tell(f"Redis does not answer: {error}")
            if time.monotonic() > deadline:
                program.tell(f"note: {self._goes_on()}")
                return f"after {seconds:g} s"
            time.sleep(_LOOK_SECONDS)
        return ""

    def _goes_on(self) -> str:
        return (
            f"the servers go on with the change to {self._reload.weight_version}; rollouts model status"
            f" {self._replicas.pool} shows what they have, and a reload with other weights replaces it"
        )

    def _left(self) -> list[str]:
        return [name for name in self._served if name not in self._seen or self._seen[name].stage not in ENDS]

    def _look(self, left: Collection[str]) -> str:
        """Tells what is new; returns why there is no use in waiting for the rest."""
        now = self._reloads.progress(self._reload)
        for name, progress in now.items():
            if self._seen.get(name) != progress:
                program.tell(f"{name} is {_what_of(progress)}")
        self._seen |= now
        there = {one.replica_id for one in self._replicas.all()}
        for name in self._served:
            if name in there:
                self._absent_since.pop(name, None)
            else:
                self._absent_since.setdefault(name, time.monotonic())
        wanted = self._reloads.wanted()
        if wanted is None:
            return "Redis has lost what was asked for"
        if wanted.reload_id != self._reload.reload_id:
            return "another change was asked for meanwhile"
        gone = [
            name for name in left if time.monotonic() - self._absent_since.get(name, time.monotonic()) > _ABSENT_SECONDS
        ]
        return f"the pool has lost {', '.join(gone)}" if len(gone) == len(left) else ""

    def _report(self, why: str, *, as_json: bool) -> None:
        done = [name for name in self._served if name in self._seen and self._seen[name].stage is Stage.DONE]
        if as_json:
            program.print_json([_row(name, self._seen.get(name)) for name in self._served])
            if len(done) < len(self._served):
                raise typer.Exit(1)
        elif len(done) < len(self._served):
            self._fail(done, why)
        else:
            have = "replica has" if len(done) == 1 else "replicas have"
            typer.echo(f"{len(done)} {have} the weights {self._reload.weight_version}")

    def _fail(self, done: Sequence[str], why: str) -> NoReturn:
        others = [f"{name} {_what_of(self._seen.get(name))}" for name in self._served if name not in done]
        raise UserError(
            f"{len(done)} of {len(self._served)} replicas have the weights {self._reload.weight_version}:"
            f" {'; '.join([*([why] if why else []), *others])}"
        )


def _row(name: str, progress: Progress | None) -> Mapping[str, str | None]:
    return {
        "replica_id": name,
        "stage": progress.stage.value if progress else None,
        "text": progress.text if progress else "",
    }


def _what_of(progress: Progress | None) -> str:
    if progress is None:
        return "has said nothing"
    return progress.stage.value + (f": {progress.text}" if progress.text else "")
