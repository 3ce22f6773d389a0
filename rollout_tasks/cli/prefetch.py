"""`rollouts prefetch`: fills the download cache with all files that a benchmark's tasks need."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from benchmark.items import Item, load_items
from rollout_tasks.cli import program
from rollout_tasks.cli.program import DONE, INCOMPLETE, print_json, tell
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import ItemUnsupported
from rollout_tasks.environments.osworld.downloads import Download, DownloadCache, DownloadError
from rollout_tasks.environments.osworld.task import task_config
from rollout_tasks.environments.osworld.task_files import files_of
from rollout_tasks.errors import UserError
from rollout_tasks.registry import environment_name
from rollout_tasks.unicode_text import one_line

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

LINE_SECONDS = 10.0
"""How often a line is printed when there is no terminal to draw on."""
_TICK_SECONDS = 0.5
_ENVIRONMENT = "osworld"
"""The environment whose items need files."""


@application.command()
def command(
    data_path: Annotated[Path, typer.Option("--data-path", "--data", help="Benchmark file or OSWorld tree.")],
    at_a_time: Annotated[int, typer.Option("--at-a-time", min=1, max=32, help="Downloads at a time.")] = 4,
    skip_invalid: Annotated[bool, typer.Option("--skip-invalid", help="Leave out items that are wrong.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of sentences.")] = False,
) -> int:
    """Download what tasks need into this machine's cache, so that no rollout waits for it.

    Files go to `$XDG_CACHE_HOME/computer-use-rollouts/downloads` (default:
    ~/.cache), where the workers of this machine look first. What is there already
    is not downloaded again; an unfinished download is continued.

    For example:  [bold]rollouts prefetch --data-path osworld/[/bold]

    Exit code 1: some files could not be downloaded; they are named with the reason.
    """
    return prefetch(data_path, at_a_time=at_a_time, skip_invalid=skip_invalid, as_json=as_json)


def prefetch(data_path: Path, *, at_a_time: int, skip_invalid: bool, as_json: bool) -> int:
    """Downloads the files and prints a report.

    Returns:
        The exit code.

    Raises:
        UserError: An item is wrong.
        BenchmarkError: The data cannot be read.
    """
    benchmark = load_items(data_path, skip_invalid=skip_invalid)
    for sentence in benchmark.skipped:
        tell(f"left out: {sentence}")
    urls = _urls(benchmark.items, skip_invalid=skip_invalid)
    cache = DownloadCache()
    cached = {url for url in urls if cache.find(url) is not None}
    got, failed = _fetch(cache, [url for url in urls if url not in cached], at_a_time)
    found: dict[str, Any] = {
        "folder": str(cache.folder),
        "files": len(urls),
        "cached_before": len(cached),
        "downloaded": len(got),
        "bytes_downloaded": sum(download.size for download in got),
        "failed": failed,
    }
    if as_json:
        print_json(found)
    else:
        _say(found)
    return INCOMPLETE if failed else DONE


def _urls(items: Iterable[Item], *, skip_invalid: bool) -> list[str]:
    """Returns every URL once, in the items' order; leaves out what a run leaves out, and items of other environments."""
    urls: dict[str, None] = {}
    usual = RunConfig(env_mode=_ENVIRONMENT)
    for item in items:
        if environment_name(item, usual) != _ENVIRONMENT:
            continue
        try:
            urls.update((file.url, None) for file in files_of(task_config(item)))
        except ValueError as error:
            if not (skip_invalid or isinstance(error, ItemUnsupported)):
                raise UserError(f"item {item.id!r}: {error}") from error
            tell(f"left out: item {item.id!r}: {error}")
    return list(urls)


def _fetch(cache: DownloadCache, urls: list[str], at_a_time: int) -> tuple[list[Download], dict[str, str]]:
    got: list[Download] = []
    failed: dict[str, str] = {}
    counter = _Bytes()
    columns = (TextColumn("Downloading"), BarColumn(), MofNCompleteColumn(), TextColumn("files, {task.fields[size]}"))
    console = Console(stderr=True)
    draws = console.is_terminal and not console.is_dumb_terminal
    next_line = time.monotonic() + LINE_SECONDS
    with Progress(*columns, console=console, disable=not (urls and draws)) as progress:
        files = progress.add_task("", total=len(urls), size="")
        pool = ThreadPoolExecutor(at_a_time)
        try:
            running = {pool.submit(cache.fetch, url, counter.of(url)): url for url in urls}
            left = set(running)
            while left:
                done, left = wait(left, timeout=_TICK_SECONDS, return_when=FIRST_COMPLETED)
                for future in done:
                    url = running[future]
                    try:
                        got.append(future.result())
                    except (DownloadError, OSError) as error:
                        failed[url] = str(error).removeprefix(f"{url}: ")
                progress.update(files, advance=len(done), size=f"{counter.megabytes:.0f} MB")
                if not draws and time.monotonic() >= next_line:
                    over = len(got) + len(failed)
                    sys.stderr.write(f"downloading: {over} of {len(urls)} files, {counter.megabytes:.0f} MB\n")
                    next_line = time.monotonic() + LINE_SECONDS
        finally:
            counter.stop()
            pool.shutdown(cancel_futures=True, wait=True)
    return got, failed


class _Stopped(Exception):
    """The program ends; what was received so far is kept for the next time."""


class _Bytes:
    """Counts the bytes of all downloads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._have: dict[str, int] = {}
        self._stopping = False

    def stop(self) -> None:
        """Has the downloads that still run end."""
        self._stopping = True

    def of(self, url: str) -> Any:
        """Returns the progress callback of one download."""

        def note(have: int, _total: int | None) -> None:
            if self._stopping:
                raise _Stopped
            with self._lock:
                self._have[url] = have

        return note

    @property
    def megabytes(self) -> float:
        """Megabytes downloaded so far."""
        with self._lock:
            return sum(self._have.values()) / 1e6


def _say(found: dict[str, Any]) -> None:
    megabytes = found["bytes_downloaded"] / 1e6
    sys.stdout.write(
        f"{found['files']} files: {found['cached_before']} were there, {found['downloaded']} downloaded"
        f" ({megabytes:.1f} MB), {len(found['failed'])} failed. Cache: {found['folder']}\n"
    )
    for url, reason in found["failed"].items():
        sys.stdout.write(f"  {one_line(f'{url}: {reason}')}\n")


def main() -> None:
    """Runs the command."""
    program.run(application)
