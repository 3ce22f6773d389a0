"""A cache of downloads, shared by all processes of a machine: each URL is downloaded once.

<cache>/computer-use-rollouts/downloads/
    objects/<sha256 of the content>     complete files, never changed
    urls/<sha256 of the URL>.json       a URL's object: its hash and size
    partial/<sha256 of the URL>         an unfinished download; it goes on from there, also after a kill
    locks/<sha256 of the URL>           held by the process that downloads it
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from benchmark.backoff import passing, pause, retry_after
from desktop_image.cache_folder import user_cache_folder
from desktop_image.locks import locked
from rollout_tasks.settings import settings
from rollout_tasks.unicode_text import printable
from vm_pool.egress.addresses import NotPublic, Unresolved
from vm_pool.egress.http_transport import opened

MAX_BYTES = 4 << 30
"""No task needs a larger file."""
MAX_BYTES_TOGETHER = 8 << 30
"""For all files of one task. What is too much by one file is kept: it is complete, and another task may need it."""
MOST_FILES_TOGETHER = 1000
"""For one task."""
LEAST_FREE = 1 << 30
"""Bytes that downloads leave free on their disk, which results or a system may need."""
TRIES = 4
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds: the longest pause after the first try, and the longest of all."""
WAIT_SECONDS = 3600.0
"""How long another process may take to download the same URL."""
SILENCE_SECONDS = 60.0
_ROOM_BYTES = 16 << 20
"""How much is received between two looks at the disk."""
_SHOWN = 500
"""Characters of a wrong URL that are shown."""
_TIMEOUT = httpx.Timeout(SILENCE_SECONDS, connect=15.0)

DownloadCallback = Callable[[int, int | None], None]
"""Called with the bytes received, and the total if it is known."""


class DownloadError(Exception):
    """A file cannot be downloaded; one sentence, safe to print, names the URL and the reason."""

    def __init__(self, sentence: str) -> None:
        super().__init__(printable(sentence))


@dataclass(frozen=True, slots=True)
class Download:
    """A complete file in the cache."""

    url: str
    sha256: str
    size: int
    path: Path


class DownloadCache:
    """The cache in one folder."""

    def __init__(self, folder: Path | None = None) -> None:
        """Touches nothing yet.

        Args:
            folder: Default: ``downloads`` in this user's cache.

        Raises:
            OSError: This user has no home.
        """
        self.folder = folder or user_cache_folder() / "downloads"

    def find(self, url: str) -> Download | None:
        """Returns the cached file of a URL; None if it is not cached, or incomplete."""
        try:
            known = json.loads((self.folder / "urls" / f"{_key(url)}.json").read_text(encoding="utf-8"))
            path = self.folder / "objects" / str(known["sha256"])
            size = int(known["size"])
            if path.stat().st_size == size:
                return Download(url, path.name, size, path)
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return None

    def fetch(self, url: str, progress: DownloadCallback = lambda _have, _total: None) -> Download:
        """Returns the file of a URL; downloads it unless it is cached, and waits if another process downloads it.

        Raises:
            DownloadError: It cannot be downloaded.
        """
        if (found := self.find(url)) is not None:
            return found
        _check_address(url)
        for name in ("objects", "urls", "partial", "locks"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        with self._lock(url):
            return self.find(url) or self._download(url, progress)

    def fetch_all(self, urls: Iterable[str]) -> dict[str, str]:
        """Downloads the files of one task, as far as they are not cached; returns their SHA-256 by URL.

        Raises:
            DownloadError: One cannot be downloaded, or they are too many, or too large together.
        """
        named = dict.fromkeys(urls)
        if len(named) > MOST_FILES_TOGETHER:
            raise DownloadError(f"the task names {len(named)} files, more than {MOST_FILES_TOGETHER}")
        together, hashes = 0, {}
        for url in named:
            download = self.fetch(url)
            hashes[url] = download.sha256
            together += download.size
            if together > MAX_BYTES_TOGETHER:
                larger = f"larger than {MAX_BYTES_TOGETHER >> 30} GiB together"
                raise DownloadError(f"{url}: with this one, the task's files are {larger}")
        return hashes

    def copy(self, url: str, target: Path) -> None:
        """Writes a copy of a URL's file to a path; a copy, since its users may change it.

        Raises:
            DownloadError: It cannot be downloaded.
        """
        download = self.fetch(url)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(download.path, target)

    def _download(self, url: str, progress: DownloadCallback) -> Download:
        partial = self.folder / "partial" / _key(url)
        for left in reversed(range(TRIES)):
            requested_pause: float | None = None
            try:
                _receive(url, partial, progress)
                break
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
                if status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE and partial.exists() and left:
                    _forget(partial)
                elif not passing(status) or not left:
                    if not passing(status):  # else a later download goes on from there
                        _forget(partial)
                    raise DownloadError(f"{url}: HTTP {status} {error.response.reason_phrase}") from error
                requested_pause = retry_after(error.response.headers)
            except NotPublic as error:
                if not left or not (isinstance(error, Unresolved) and error.for_now):
                    raise DownloadError(f"{url}: {error}{_how_to_trust(error)}") from error
            except (_TooLarge, _NoRoom) as error:
                _forget(partial)
                raise DownloadError(f"{url}: {error}") from error
            except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, _BrokenOff) as error:
                if not left:
                    raise DownloadError(f"{url}: {str(error) or type(error).__name__} ({TRIES} tries)") from error
            if requested_pause is not None:
                requested_pause = min(requested_pause, LONGEST_PAUSE)
            time.sleep(pause(TRIES - left, first=FIRST_PAUSE, longest=LONGEST_PAUSE, requested_pause=requested_pause))
        return self._keep(url, partial)

    def _keep(self, url: str, partial: Path) -> Download:
        """Makes a complete partial file an object, then writes the URL's entry: an entry's object always exists."""
        with partial.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        download = Download(url, digest, partial.stat().st_size, self.folder / "objects" / digest)
        partial.replace(download.path)
        _state_of(partial).unlink(missing_ok=True)
        entry = self.folder / "urls" / f"{_key(url)}.json"
        temporary = entry.with_suffix(".part")
        facts = {"url": url, "sha256": digest, "size": download.size, "at": time.time()}
        temporary.write_text(json.dumps(facts), encoding="utf-8")
        temporary.replace(entry)
        return download

    @contextmanager
    def _lock(self, url: str) -> Iterator[None]:
        """Lets one process or thread in at a time; the lock ends with its holder, even if that is killed."""
        with locked(self.folder / "locks" / _key(url), seconds=WAIT_SECONDS) as alone:
            if not alone:
                raise DownloadError(f"{url}: another process has been downloading it for {WAIT_SECONDS:g} s")
            yield


def _check_address(url: str) -> None:
    shown = url if len(url) <= _SHOWN else f"{url[:_SHOWN]}..."
    try:
        address = httpx.URL(url)
        _ = address.raw_host  # which must be ASCII
    except (httpx.InvalidURL, UnicodeError) as error:
        raise DownloadError(f"{shown}: is not a valid address: {error}") from error
    if address.scheme not in {"http", "https"}:
        raise DownloadError(f"{shown}: only http and https are downloaded")


class _BrokenOff(Exception):
    """A transfer ended before it was complete."""


class _TooLarge(Exception):
    """A file is larger than any may be."""


class _NoRoom(Exception):
    """The disk has too little room for the file."""


@dataclass(frozen=True, slots=True)
class _State:
    """The complete file that a partial file belongs to."""

    validator: str
    """The server's ETag or date of the file; a download goes on only if it is unchanged."""
    total: int | None


def _receive(url: str, partial: Path, progress: DownloadCallback) -> None:
    """Tries to download once: goes on where an earlier try ended, if the server still has the same file."""
    have = partial.stat().st_size if partial.exists() else 0
    state = _read_state(partial) if have else None
    if have and (state is None or not _can_be_sent(state.validator)):
        have = 0
    headers = {}
    if have and state is not None:
        if state.total == have:
            return
        headers = {"Range": f"bytes={have}-", "If-Range": state.validator}
    with opened("GET", url, headers=headers, timeout=_TIMEOUT, trusted=settings().trusted_hosts) as response:
        response.raise_for_status()
        if response.status_code != 206:
            have = 0
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            partial.unlink(missing_ok=True)
            raise _BrokenOff("another part was sent than the one asked for")
        total = _total(response, have)
        _check_size(have if total is None else total)
        _check_room(partial.parent, 0 if total is None else total - have)
        if not have:
            partial.unlink(missing_ok=True)  # before its state says that its bytes are of this version
        _write_state(partial, _State(_validator(response), total))
        with partial.open("ab") as file:
            for chunk in response.iter_raw():
                file.write(chunk)
                have += len(chunk)
                _check_size(have)
                if have // _ROOM_BYTES > (have - len(chunk)) // _ROOM_BYTES:
                    _check_room(partial.parent, 0)
                progress(have, total)
    if total is not None and have != total:
        raise _BrokenOff(f"broke off after {have} of {total} bytes")


def _how_to_trust(error: NotPublic) -> str:
    return "" if isinstance(error, Unresolved) else "; ROLLOUT_DOWNLOAD_HOSTS names hosts of your own network"


def _total(response: httpx.Response, have: int) -> int | None:
    length = response.headers.get("Content-Length", "")
    return have + int(length) if length.isdigit() and "Content-Encoding" not in response.headers else None


def _validator(response: httpx.Response) -> str:
    """Returns what the server names this version of the file by; empty if by nothing that can be sent back to it."""
    tag = response.headers.get("ETag", "")
    named = ("" if tag.startswith("W/") else tag, response.headers.get("Last-Modified", ""))
    return next(filter(_can_be_sent, named), "")


def _can_be_sent(validator: object) -> bool:
    """Whether a header can hold it: servers send any bytes as theirs."""
    return isinstance(validator, str) and validator.isascii() and validator.isprintable() and bool(validator)


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise _TooLarge(f"larger than {MAX_BYTES >> 30} GiB")


def _check_room(folder: Path, more: int) -> None:
    """Checks that so many more bytes leave enough of the disk free."""
    if shutil.disk_usage(folder).free - more < LEAST_FREE:
        raise _NoRoom(f"it would leave less than {LEAST_FREE / (1 << 30):g} GiB free on the disk of {folder.parent}")


def _state_of(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.json")


def _forget(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    _state_of(partial).unlink(missing_ok=True)


def _read_state(partial: Path) -> _State | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return _State(**json.loads(_state_of(partial).read_text(encoding="utf-8")))
    return None


def _write_state(partial: Path, state: _State) -> None:
    _state_of(partial).write_text(json.dumps(asdict(state)), encoding="utf-8")


def _key(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()
