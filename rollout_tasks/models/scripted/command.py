"""The scripted model's command: reads its files, prints its address, and serves until it is stopped."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
import uvicorn

from benchmark.errors import BenchmarkError
from benchmark.items import load_items
from rollout_tasks.errors import UserError
from rollout_tasks.models.scripted import API_KEY_VARIABLE
from rollout_tasks.models.scripted.faults import read_faults
from rollout_tasks.models.scripted.scripts import load_scripts
from rollout_tasks.models.scripted.server import MARK, ScriptedModel

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@application.command()
def serve(
    data_path: Annotated[Path, typer.Option(help="Benchmark file (JSON, JSONL) or OSWorld tree.")],
    script_file: Annotated[
        Path | None, typer.Option(help="JSON {item id: [turns]}; default: the items' own scripts and worked answers.")
    ] = None,
    corrupt: Annotated[int, typer.Option(min=0, help="Items that get a wrong final answer.")] = 0,
    seed: Annotated[int, typer.Option(help="Same seed: same wrong answers, same faults.")] = 0,
    faults: Annotated[Path | None, typer.Option(help="JSON list of fault rules.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 0,
    latency: Annotated[float, typer.Option(min=0, help="Seconds every reply takes at least.")] = 0.0,
    skip_invalid: Annotated[bool, typer.Option("--skip-invalid", help="Leave out items that cannot be read.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Say where it is as JSON.")] = False,
    exit_with_parent: Annotated[
        int | None, typer.Option(metavar="PID", help="Stop when this process, the parent, has ended.")
    ] = None,
) -> None:
    """Serves the scripted model; if SCRIPTED_MODEL_API_KEY is set, only to clients that send that key."""
    api_key = os.environ.get(API_KEY_VARIABLE) or None
    if api_key is None and not _is_loopback(host):
        raise UserError(f"--host {host} can be reached from other machines: set {API_KEY_VARIABLE}")
    items = load_items(data_path, skip_invalid=skip_invalid).items
    scripts = load_scripts(items, script_file, corrupt=corrupt, seed=seed)
    if not len(scripts):
        raise UserError(f"{data_path}: none of its {len(items)} items has a script or a worked answer")
    rules = read_faults(faults) if faults else []
    model = ScriptedModel(items, scripts, rules, seed=seed, latency=latency, api_key=api_key)

    def announce(url: str) -> None:
        if as_json:
            print(json.dumps({"url": url, "pid": os.getpid()}), flush=True)  # noqa: T201
        else:
            print(f"Scripted model at {url}: {len(scripts)} of {len(items)} items have a script", flush=True)  # noqa: T201

    config = uvicorn.Config(
        model.app(),
        headers=[MARK],
        server_header=False,
        access_log=False,
        log_level="critical",
        lifespan="off",
        timeout_graceful_shutdown=0,
    )
    with _listening(host, port) as listener:
        _Server(config, announce, exit_with_parent).run([listener])


def main() -> None:
    """Runs the command; a user's mistake leads to one sentence on stderr and exit code 2."""
    try:
        with contextlib.suppress(KeyboardInterrupt):
            application()
    except (UserError, BenchmarkError) as error:
        print(f"scripted model: {error}", file=sys.stderr)  # noqa: T201
        raise SystemExit(2) from None


class _Server(uvicorn.Server):
    """Prints its address once it listens, and ends with its parent."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[str], None], parent: int | None) -> None:
        super().__init__(config)
        self._announce = announce
        self._parent = parent

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            self._announce(f"http://{f'[{host}]' if ':' in host else host}:{port}/v1")

    async def on_tick(self, counter: int) -> bool:
        orphaned = self._parent is not None and os.getppid() != self._parent
        return await super().on_tick(counter) or orphaned


def _listening(host: str, port: int) -> socket.socket:
    # asyncio only turns Nagle's algorithm off, which costs 40 ms a request, where it sees the protocol number.
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UserError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
