"""`rollouts serve`: rolls out items for a trainer until it is stopped."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmark.items import Item, LoadedItems
from benchmark.sources import STANDARD_INPUT
from desktop_image.locks import hold_folder, is_held
from rollout_tasks.cli import program
from rollout_tasks.cli.run_file import resolve_config
from rollout_tasks.cli.run_options import aliases, with_config_options
from rollout_tasks.config import RunConfig
from rollout_tasks.config_fields import check_name
from rollout_tasks.errors import UserError
from rollout_tasks.key_values import key_values
from rollout_tasks.unicode_text import one_line

if TYPE_CHECKING:
    from rollout_tasks.runs.store import RunStore
    from rollout_tasks.training.index.index import Index
    from rollout_tasks.training.service_loop.group_run import GroupRun
    from rollout_tasks.training.service_loop.item_sources import ItemSource
    from rollout_tasks.training.service_loop.loop import ServiceLoop
    from rollout_tasks.training.service_loop.state_file import ServiceState, StateFile

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

_LONGEST_NAME = 80
"""Runs' names have a number after it."""
_STEP_SECONDS = 1.0
_FOLDER = ".service"
"""Ends the name of the loop's folder; no run's name has it, as runs of the loop end in a number."""


@application.command(context_settings=program.any_spelling(aliases()))
@with_config_options
def serve(
    options: dict[str, Any],
    config: Annotated[Path | None, typer.Option("--config", help="A run.yaml; options override it.")] = None,
    name: Annotated[
        str,
        typer.Option("--name", help="Of the loop; its runs are NAME-000001 and so on. Start it again with the same."),
    ] = "serve",
    in_flight: Annotated[
        int, typer.Option(min=1, max=100_000, help="Rollouts that are out at a time: about twice your VMs.")
    ] = 16,
    policy: Annotated[str, typer.Option(help="How often items are rolled out: fixed, or success-rate.")] = "fixed",
    policy_option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="An option of the policy; repeatable.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Roll each item out as often. Default: until the loop is stopped.")
    ] = None,
    stream: Annotated[
        str | None, typer.Option(metavar="KEY", help="Take the items from a Redis stream in place of --data-path.")
    ] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Give the newest checkpoint in here to the servers of --model-pool."),
    ] = None,
    index: Annotated[
        bool, typer.Option("--index", help="Add each group's run to the index of rollouts, where trainers claim them.")
    ] = False,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when there is nothing more to do.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Show what the loop of this name is doing, and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of sentences.")] = False,
) -> int:
    """Roll out items for a trainer on your workers (REDIS_URL) until SIGTERM. For example:

    [bold]rollouts serve --data-path tasks.jsonl --env-mode py -n 8 --model-pool policy --checkpoints checkpoints[/bold]

    The rollouts of an item are a run, and a group for the trainer. SIGTERM or
    Ctrl-C lets what is out end; a second one leaves it to the workers. Started
    again with the same name, it goes on where it was.
    """
    resolved = resolve_config(config, options)
    try:
        check_name(name, _LONGEST_NAME)
    except ValueError as error:
        raise UserError(f"--name: {error}") from error
    folder = Path(resolved.output_dir).resolve() / f"{name}{_FOLDER}"
    if state:
        return _show_state(folder, as_json=as_json)
    _check(resolved, stream, checkpoints)
    from rollout_tasks.redis_client import checked_client  # here, so that a refusal is fast
    from rollout_tasks.runs.store import RunStore
    from rollout_tasks.training.sampling_policy import sampling_policy
    from rollout_tasks.training.service_loop.checkpoints import Checkpoints
    from rollout_tasks.training.service_loop.journal import Journal
    from rollout_tasks.training.service_loop.loop import ServiceLoop, ServiceOptions

    chosen = sampling_policy(
        policy,
        rollouts=resolved.rollouts_per_item,
        most_turns=resolved.limits.max_turns,
        options=key_values("--policy-option", policy_option or []),
    )
    if index:
        _index()  # so that a wrong address is a refusal, and not a loop that is blocked
    store = RunStore(checked_client())
    source = _source(resolved, name, stream, epochs, store)
    given = None if checkpoints is None else Checkpoints(checkpoints, str(resolved.model.pool), store.client)
    with _alone_in(folder, name):
        loop = ServiceLoop(
            ServiceOptions(name, resolved, in_flight, ends_when_idle=until_idle),
            Journal(folder),
            source,
            chosen,
            store,
            checkpoints=given,
            on_end=_added_to_index if index else None,
        )
        return _run(loop, folder, as_json=as_json)


def _check(config: RunConfig, stream: str | None, checkpoints: Path | None) -> None:
    """Refuses options that contradict each other.

    Raises:
        UserError: Two do, or one is missing.
    """
    if config.run_id is not None:
        raise UserError("--run-id: the loop names its runs itself: give it a --name")
    if not config.evaluate_results:
        raise UserError("--no-evaluate-results: the rewards of a loop's groups are their scores")
    if (stream is None) == (config.data.path is None):
        raise UserError("--data-path or --stream: name one of them, where the items come from")
    if config.data.path == STANDARD_INPUT:
        raise UserError("--data-path: the loop reads its data again and again, and standard input can be read once")
    if checkpoints is not None and config.model.pool is None:
        raise UserError("--checkpoints: name the pool of the servers that get them (--model-pool)")


@cache
def _index() -> Index:
    from rollout_tasks.training.index.index import Index  # here, because it needs a package that others do not

    return Index()


def _added_to_index(group: GroupRun) -> None:
    """Adds the run of a group that has ended; harmless when repeated."""
    if group.folder.has_report():
        _index().add(group.folder.path)


def _source(config: RunConfig, name: str, stream: str | None, epochs: int | None, store: RunStore) -> ItemSource:
    # Here, because `--help` needs none of it and it is slow to import.
    from rollout_tasks.runs.checked_items import checked_items
    from rollout_tasks.runs.submission import load_benchmark
    from rollout_tasks.training.service_loop.item_sources import FileSource, StreamSource

    told: set[str] = set()

    def checked(loaded: LoadedItems) -> LoadedItems:
        found = checked_items(config, loaded, here=False).benchmark
        for sentence in found.skipped:
            if sentence not in told:
                program.tell(f"left out: {sentence}")
                told.add(sentence)
        return found

    if stream is None:
        checked(load_benchmark(config))  # so that wrong data is a refusal, and not a loop that is blocked
        seed = config.data.seed if config.data.shuffle else None
        return FileSource(lambda: checked(load_benchmark(config)), epochs=epochs, seed=seed)

    def problem_of(item: Item) -> str:
        try:
            found = checked_items(config, LoadedItems("stream", stream, (item,)), here=False).benchmark
        except UserError as error:
            store.client.ping()  # if Redis is away, the error says nothing about the item
            return str(error)
        return "; ".join(found.skipped) or ("" if found.items else "its score cannot be relied on")

    return StreamSource(store.client, stream, name, problem_of)


def _run(loop: ServiceLoop, folder: Path, *, as_json: bool) -> int:
    # Here, because `--help` needs none of it and it is slow to import.
    from rollout_tasks.training.service_loop.state_file import StateFile

    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("rollout_tasks").setLevel(logging.INFO)  # other packages tell of each request
    leave = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        if loop.draining:  # the second time; not set here, as the main thread may hold the event's lock
            threading.Thread(target=leave.set, daemon=True).start()
        loop.draining = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    file = StateFile(folder)
    while not loop.is_over and not leave.is_set():
        now = loop.step()
        if _shown(file, now):
            _tell(asdict(now), str(now), as_json=as_json)
        if not loop.is_over:
            leave.wait(_STEP_SECONDS)
    left = "everything that was begun has ended" if loop.is_over else "the workers go on with what is out"
    last = replace(now, doing="stopped", because=left)
    if _shown(file, last):
        _tell(asdict(last), str(last), as_json=as_json)
    return program.DONE if loop.is_over else program.INCOMPLETE


def _shown(file: StateFile, state: ServiceState) -> bool:
    """Writes the state; a disk that is full does not end the loop. Returns whether it is worth a line."""
    try:
        return file.show(state)
    except OSError as error:
        program.tell(f"note: the state cannot be written: {error}")
        return True


@contextmanager
def _alone_in(folder: Path, name: str) -> Iterator[None]:
    """Makes the loop's folder, and holds it for the body.

    Raises:
        UserError: It cannot be written, or another loop of that name runs.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = hold_folder(folder)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}") from error
    if held is None:
        raise UserError(f"--name: a loop {name} is running already; see rollouts serve --name {name} --state")
    try:
        yield
    finally:
        os.close(held)


def _show_state(folder: Path, *, as_json: bool) -> int:
    # Here, because `--help` needs none of it and it is slow to import.
    from rollout_tasks.training.service_loop.state_file import read_state

    values, state = read_state(folder)
    if not is_held(folder) and state.doing != "stopped":
        state = replace(state, doing="stopped", because=f"it does not run; it was {state.doing}: {state.because}")
    _tell({**values, **asdict(state)}, str(state), as_json=as_json)
    return program.DONE


def _tell(values: Mapping[str, Any], sentence: str, *, as_json: bool) -> None:
    sys.stdout.write(f"{json.dumps(dict(values)) if as_json else one_line(sentence)}\n")
    sys.stdout.flush()
