"""`rollouts model reload`: asks for new weights in a pool's servers, and tells how far each of them is."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from rollout_tasks.cli import program
from rollout_tasks.errors import UserError
from rollout_tasks.models.pool.reloads import ENDS, Progress, Reload, Reloads, Stage
from rollout_tasks.models.pool.replicas import Replica, Replicas

_LOOK_SECONDS = 0.5


def ask(replicas: Replicas, reloads: Reloads, checkpoint: str, version: str | None, *, in_flight: bool) -> Reload:
    """Asks for a checkpoint's weights.

    Raises:
        UserError: No replica can get them, or they cannot be named like that.
    """
    pool = replicas.pool
    if not replicas.all():
        raise UserError(f"POOL: model pool {pool} has no replica")
    if not _served(replicas.all()):
        raise UserError(
            f"POOL: model pool {pool} has attached servers only: whoever runs them gives them weights, and then"
            " rollouts model weights says so"
        )
    folder = Path(checkpoint)
    if not folder.is_dir() and not folder.is_absolute():
        raise UserError(
            f"CHECKPOINT: there is no folder {checkpoint} here; name it as the machines with the servers do, from /"
        )
    try:
        return reloads.ask(str(folder.resolve()), version or folder.resolve().name, in_flight=in_flight)
    except ValueError as error:
        raise UserError(str(error)) from error


def follow(replicas: Replicas, reloads: Reloads, reload: Reload, seconds: float, *, as_json: bool) -> None:
    """Tells how far each replica is, until all have ended.

    Raises:
        UserError: One of them has not got the weights, or did not say so in time.
        typer.Exit: The same, where JSON was printed.
    """
    asked = [one.replica_id for one in _served(replicas.all())]
    deadline = time.monotonic() + seconds
    seen: dict[str, Progress] = {}
    while True:
        now = reloads.progress(reload)
        for name, progress in now.items():
            if seen.get(name) != progress:
                program.tell(f"{name} is {progress.stage.value}" + (f": {progress.text}" if progress.text else ""))
        seen = dict(now)
        left = [name for name in asked if name not in seen or seen[name].stage not in ENDS]
        wanted = reloads.wanted()
        if not left or time.monotonic() > deadline or wanted is None or wanted.reload_id != reload.reload_id:
            break
        time.sleep(_LOOK_SECONDS)
    _report(reload, asked, seen, replaced=bool(left) and time.monotonic() <= deadline, as_json=as_json)


def _report(
    reload: Reload, asked: Sequence[str], seen: Mapping[str, Progress], *, replaced: bool, as_json: bool
) -> None:
    done = [name for name in asked if name in seen and seen[name].stage is Stage.DONE]
    if as_json:
        rows = [
            {
                "replica_id": name,
                "stage": seen[name].stage if name in seen else None,
                "text": seen[name].text if name in seen else "",
            }
            for name in asked
        ]
        program.print_json(rows)
        if len(done) < len(asked):
            raise typer.Exit(1)
        return
    if len(done) == len(asked):
        typer.echo(
            f"{len(done)} {'replica has' if len(done) == 1 else 'replicas have'} the weights {reload.weight_version}"
        )
        return
    others = "; ".join(f"{name} {_what_of(seen.get(name))}" for name in asked if name not in done)
    why = "another change was asked for meanwhile: " if replaced else ""
    raise UserError(f"{len(done)} of {len(asked)} replicas have the weights {reload.weight_version}: {why}{others}")


def _what_of(progress: Progress | None) -> str:
    if progress is None:
        return "has said nothing"
    return progress.stage.value + (f": {progress.text}" if progress.text else "")


def _served(replicas: Sequence[Replica]) -> list[Replica]:
    return [one for one in replicas if one.checkpoint is not None]
