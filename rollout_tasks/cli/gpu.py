"""`rollouts gpu`: who has the memory of this machine's GPUs, and the end of servers that were left over there."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from rollout_tasks.cli import program
from rollout_tasks.cli.fitting_tables import Column, FittingTable, table_console
from rollout_tasks.errors import UserError
from rollout_tasks.models.serving.gpu_processes import GPUHolders, GPUProcess, holders
from rollout_tasks.models.serving.nvml import GPUMemory, Nvml, open_nvml
from rollout_tasks.models.serving.process_end import ProcessEnd
from rollout_tasks.models.serving.server_process import LONGEST_END_SECONDS
from rollout_tasks.unicode_text import one_line

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

_KILL_SECONDS = 10.0
"""From SIGKILL to the end of a process; a driver may keep it."""
_FREE_SECONDS = 10.0
"""From a process's end until the driver has its memory."""
_LOOK_SECONDS = 0.1
_SHOWN = 60
"""Characters of a command line in the table; JSON has all of it."""


@application.command("list")
def show(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables and sentences.")] = False,
) -> None:
    """Show this machine's GPUs, their memory, and the processes that have it.

    Says of each process whether the one that started it is gone, whether
    rollouts model serve started it, and whether it is left over.
    """
    with open_nvml() as nvml:
        gpus = nvml.gpus()
    found = holders(gpus)
    if as_json:
        program.print_json(_as_json(gpus, found))
        return
    console = table_console(highlight=False, markup=False)
    console.print(_gpu_table(gpus))
    if found.processes:
        console.print(_process_table(found.processes))
    else:
        typer.echo("no process that this machine shows has memory of a GPU")
    _tell_of_the_rest(gpus, found)


@application.command()
def clean(
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask: end what is yours, or what rollouts model serve started.")
    ] = False,
) -> None:
    """End servers that are left over and still have memory of a GPU.

    These are processes of a rollouts model serve that has ended, and workers of
    vLLM, SGLang and other programs that have ended. Each is shown, asked for, and
    gets SIGTERM; before one that does not end gets SIGKILL, you are asked again.
    No GPU is reset.
    """
    with open_nvml() as nvml:
        before = nvml.gpus()
        found = holders(before)
        left_over = found.left_over()
        if left_over:
            table_console(highlight=False, markup=False).print(_process_table(left_over))
            ended = [process for process in left_over if _end(process, yes)]
            after = _when_free(nvml, ended)
            _say_what_came_back(before, after)
        else:
            ended, after = [], before
            typer.echo("no process that is left over has memory of a GPU")
        _tell_of_the_rest(after, holders(after))
    if len(ended) < len(left_over):
        raise typer.Exit(program.INCOMPLETE)


def _end(process: GPUProcess, yes: bool) -> bool:
    """Ends a process if it may be ended and is wanted to; returns whether it has ended."""
    what = one_line(f"process {process.pid} of {process.user} ({process.command[:_SHOWN]})")
    own = process.user_id == os.geteuid()
    if not own and os.geteuid() != 0:
        program.tell(f"{what}: only {process.user} or root can end it")
        return False
    if yes and not (own or process.served):
        program.tell(f"{what}: it is another user's: it is not ended with --yes")
        return False
    with ProcessEnd(process.pid, process.name) as end:  # from here on, its id stays its own
        if not end.there:
            typer.echo(f"process {process.pid} has ended by itself")
            return True
        if not (yes or _agreed(f"End {what}? {process.left_over}")):
            return False
        try:
            if _sent(end.ask, "SIGTERM", process, LONGEST_END_SECONDS):
                return True
            question = f"Kill {what}? It has not ended {LONGEST_END_SECONDS:g} s after SIGTERM"
            return (yes or _agreed(question)) and _sent(end.kill, "SIGKILL", process, _KILL_SECONDS)
        except PermissionError:  # as in a container without the right to
            program.tell(f"{what}: this user may not end it")
            return False


def _sent(send: Callable[[float], bool], signal: str, process: GPUProcess, seconds: float) -> bool:
    """Sends a signal to a process, and says what has become of it."""
    program.tell(f"{signal} to process {process.pid}: waiting up to {seconds:g} s for its end")
    ended = send(seconds)
    typer.echo(f"process {process.pid} {'has ended' if ended else f'does not end within {seconds:g} s after {signal}'}")
    return ended


def _agreed(question: str) -> bool:
    """Asks whoever uses the command.

    Raises:
        UserError: Nobody can be asked.
    """
    sys.stderr.write(f"{one_line(question)} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        sys.stderr.write("\n")
        raise UserError("nobody answers on standard input: say --yes to end what is left over without being asked")
    return answer.strip().lower() in ("y", "yes")


def _when_free(nvml: Nvml, ended: Sequence[GPUProcess]) -> list[GPUMemory]:
    """Returns the GPUs once the driver no longer names the processes that have ended, or after a while."""
    gone = {process.pid for process in ended}
    deadline = time.monotonic() + _FREE_SECONDS
    while True:
        gpus = nvml.gpus()
        if time.monotonic() >= deadline or not any(gone & gpu.processes.keys() for gpu in gpus):
            return gpus
        time.sleep(_LOOK_SECONDS)


def _say_what_came_back(before: Sequence[GPUMemory], after: Sequence[GPUMemory]) -> None:
    then = {gpu.uuid: gpu.used for gpu in before}
    for gpu in after:
        came_back = then.get(gpu.uuid, gpu.used) - gpu.used
        if came_back > 0:
            typer.echo(f"GPU {gpu.index}: {came_back:,} MiB came back; {gpu.used:,} of {gpu.total:,} MiB are in use")
    if all(then.get(gpu.uuid, gpu.used) <= gpu.used for gpu in after):
        typer.echo("no memory came back")


def _tell_of_the_rest(gpus: Sequence[GPUMemory], found: GPUHolders) -> None:
    """Says of problems, and of memory that no living process has, what can be done."""
    for gpu in gpus:
        if gpu.problem:
            program.tell(f"GPU {gpu.index}: NVIDIA's driver says: {gpu.problem}")
    for pid, memory in found.unseen.items():
        program.tell(
            f"process {pid} has {_sizes(memory)}, and is not to be seen here: it runs in another container, where it must be"
            " ended, or it has ended and the driver still frees its memory; if that lasts, restart the container or the machine"
        )
    for index, size in found.unexplained.items():
        program.tell(
            f"GPU {index}: {size:,} MiB are in use, and the driver names no process that has them: look from the host for"
            f" processes of other containers, and as root with fuser -v /dev/nvidia{index} for others that have the GPU open;"
            " what is left then comes back when an administrator resets the GPU or restarts the machine"
        )


def _sizes(memory: Mapping[int, int | None]) -> str:
    return ", ".join(
        f"{'?' if size is None else f'{size:,}'} MiB of GPU {index}" for index, size in sorted(memory.items())
    )


def _gpu_table(gpus: Sequence[GPUMemory]) -> FittingTable:
    columns = [
        Column("GPU", right=True),
        Column("name", leaves=1),
        Column("used MiB", right=True),
        Column("of", right=True),
    ]
    rows = [
        (str(gpu.index), gpu.name, "?" if gpu.problem else f"{gpu.used:,}", "?" if gpu.problem else f"{gpu.total:,}")
        for gpu in gpus
    ]
    return FittingTable(columns, rows)


def _process_table(processes: Sequence[GPUProcess]) -> FittingTable:
    columns = [
        Column("process", right=True),
        Column("user", leaves=3),
        Column("memory", folds_to=22),
        Column("age", right=True, leaves=2),
        Column("parent", leaves=4),
        Column("started by", leaves=1, folds_to=12),
        Column("left over"),
        Column("command", folds_to=24),
    ]
    rows = [
        (
            str(one.pid),
            one.user,
            _sizes(one.memory) or "its workers have it",
            _age(one.seconds),
            "gone" if one.parent_gone else "there",
            "model serve" if one.served else "",
            "yes" if one.left_over else "no",
            one_line(one.command)[:_SHOWN],
        )
        for one in processes
    ]
    return FittingTable(columns, rows)


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _as_json(gpus: Sequence[GPUMemory], found: GPUHolders) -> dict[str, Any]:
    return {
        "gpus": [
            {
                "index": gpu.index,
                "name": gpu.name,
                "uuid": gpu.uuid,
                "total_mib": None if gpu.problem else gpu.total,
                "used_mib": None if gpu.problem else gpu.used,
                "held_by_no_process_mib": found.unexplained.get(gpu.index, 0),
                "problem": gpu.problem,
            }
            for gpu in gpus
        ],
        "processes": [
            {
                "pid": one.pid,
                "user": one.user,
                "command": one.command,
                "seconds": round(one.seconds, 1),
                "parent_gone": one.parent_gone,
                "started_by_model_serve": one.served,
                "left_over": one.left_over,
                "memory_mib": one.memory,
            }
            for one in found.processes
        ],
        "processes_not_seen_here": [{"pid": pid, "memory_mib": memory} for pid, memory in found.unseen.items()],
    }


def main() -> None:
    """Runs the command."""
    program.run(application)


if __name__ == "__main__":
    main()
