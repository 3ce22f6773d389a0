"""The download cache against a real HTTP server that breaks off, stalls, changes its mind and refuses."""

from __future__ import annotations

import gzip
import hashlib
import json
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.osworld import downloads, public_http
from rollout_tasks.environments.osworld.downloads import DownloadCache, DownloadError
from rollout_tasks.environments.osworld.environment import OSWorldEnvironment
from rollout_tasks.settings import settings

CONTENT = bytes(range(256)) * 4096


@dataclass
class FileServer:
    """Serves `content` and misbehaves as told, once for each entry of `faults`."""

    content: bytes = CONTENT
    tag: str = '"one"'
    date: str = ""
    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    url: str = ""


def handler_of(server: FileServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range", "")
            server.requests.append(f"{self.path} {asked}".strip())
            fault = server.faults.pop(0) if server.faults else ""
            if fault.isdigit():
                self.send_error(int(fault))
                return
            if fault == "busy":
                self.send_response(503)
                self.send_header("Retry-After", "0.5")
                self.end_headers()
                return
            if fault == "redirect":
                self.send_response(302)
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                return
            if fault == "redirect without end":
                self.send_response(302)
                self.send_header("Location", self.path)
                self.end_headers()
                with suppress(ConnectionError):
                    while True:
                        self.wfile.write(bytes(1 << 20))
            if fault == "packed":
                self.send_response(200)
                self.send_header("Content-Encoding", "gzip, gzip")
                self.end_headers()
                self.wfile.write(gzip.compress(gzip.compress(bytes(1 << 25))))
                return
            if fault == "reason":
                self.wfile.write(b"HTTP/1.1 404 \x1b[2J\r\nContent-Length: 0\r\n\r\n")
                return
            start = 0
            if asked and self.headers.get("If-Range") in {server.tag, server.date}:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
            body = server.content[start:]
            self.send_response(206 if start else 200)
            if start:
                at = 0 if fault == "another part" else start
                self.send_header("Content-Range", f"bytes {at}-{len(server.content) - 1}/{len(server.content)}")
            if server.tag:
                self.send_header("ETag", server.tag)
            if server.date:
                self.send_header("Last-Modified", server.date)
            if fault != "no length":
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(ConnectionError):
                if fault == "slow":
                    time.sleep(0.8)
                if fault == "trickle":
                    for at in range(0, len(body), 1000):
                        self.wfile.write(body[at : at + 1000])
                        time.sleep(0.05)
                    return
                self.wfile.write(body[: len(body) // 2] if fault == "break off" else body)

        def log_message(self, *_arguments: object) -> None:
            pass

    return Handler


@pytest.fixture
def server() -> Iterator[FileServer]:
    served = FileServer()
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(served))
    thread = threading.Thread(target=http.serve_forever, args=(0.05,))
    thread.start()
    served.url = f"http://127.0.0.1:{http.server_port}/file.bin?download=true"
    yield served
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DownloadCache:
    monkeypatch.setattr(downloads, "FIRST_PAUSE", 0.01)
    monkeypatch.setenv("ROLLOUT_DOWNLOAD_HOSTS", "127.0.0.1")
    settings.cache_clear()
    return DownloadCache(tmp_path / "downloads")


def files_in(cache: DownloadCache, folder: str) -> list[str]:
    return sorted(file.name for file in (cache.folder / folder).iterdir())


def test_a_file_is_downloaded_once_and_kept_by_its_content(server: FileServer, cache: DownloadCache) -> None:
    seen: list[tuple[int, int | None]] = []
    first = cache.fetch(server.url, lambda have, total: seen.append((have, total)))
    again = DownloadCache(cache.folder).fetch(server.url)

    assert first == again
    assert first.path.read_bytes() == CONTENT
    assert (first.size, first.path.name) == (len(CONTENT), first.sha256)
    assert server.requests == ["/file.bin?download=true"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert files_in(cache, "partial") == []


def test_an_attempts_record_has_the_hashes_of_its_tasks_files(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("ROLLOUT_DOWNLOAD_HOSTS", "127.0.0.1")
    settings.cache_clear()
    task = {
        "config": [{"type": "download", "parameters": {"files": [{"url": server.url, "path": "/home/user/a"}]}}],
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "vm_command_line", "command": "echo"},
            "expected": {"type": "rule", "rules": {"expected": ""}},
        },
    }
    item = Item(id="t", question="?", metadata=task)

    for _ in ("downloaded", "cached"):
        assert OSWorldEnvironment.prepare(RunConfig(), item) == {server.url: hashlib.sha256(CONTENT).hexdigest()}
    assert len(server.requests) == 1


def test_two_urls_with_one_content_are_one_object(server: FileServer, cache: DownloadCache) -> None:
    cache.fetch(server.url)
    cache.fetch(server.url + "&again")

    assert len(server.requests) == 2
    assert len(files_in(cache, "objects")) == 1


def test_the_pause_that_a_server_asks_for_is_kept(server: FileServer, cache: DownloadCache) -> None:
    server.faults = ["busy"]
    began = time.monotonic()

    assert cache.fetch(server.url).path.read_bytes() == CONTENT
    assert time.monotonic() - began >= 0.5


def test_what_broke_off_goes_on_from_there(server: FileServer, cache: DownloadCache) -> None:
    server.faults = ["break off", "break off"]

    assert cache.fetch(server.url).path.read_bytes() == CONTENT

    half = len(CONTENT) // 2
    path = "/file.bin?download=true"
    assert server.requests == [path, f"{path} bytes={half}-", f"{path} bytes={half + half // 2}-"]


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        (["break off"] * downloads.TRIES, r"closed connection .*\(4 tries\)"),
        (["break off"] + ["503"] * (downloads.TRIES - 1), r": HTTP 503 Service Unavailable"),
    ],
    ids=["broken off", "busy"],
)
def test_a_later_process_goes_on_where_an_earlier_one_stopped(
    faults: list[str], sentence: str, server: FileServer, cache: DownloadCache
) -> None:
    server.faults = faults
    with pytest.raises(DownloadError, match=sentence):
        cache.fetch(server.url)
    server.requests.clear()

    assert cache.fetch(server.url).path.read_bytes() == CONTENT
    assert "bytes=" in server.requests[0]


def test_a_file_that_changed_meanwhile_begins_anew(server: FileServer, cache: DownloadCache) -> None:
    server.faults = ["break off"] * downloads.TRIES
    with pytest.raises(DownloadError):
        cache.fetch(server.url)
    server.content, server.tag = b"new" * 1000, '"two"'

    assert cache.fetch(server.url).path.read_bytes() == b"new" * 1000


def test_without_a_validator_nothing_is_glued_together(server: FileServer, cache: DownloadCache) -> None:
    server.tag = ""
    server.faults = ["break off"]

    assert cache.fetch(server.url).path.read_bytes() == CONTENT
    assert server.requests == ["/file.bin?download=true"] * 2


@pytest.mark.parametrize("tag", ['"caf\xe9"', '"\x85"'])
def test_a_validator_that_no_header_can_hold_is_none(tag: str, server: FileServer, cache: DownloadCache) -> None:
    server.tag = tag
    server.faults = ["break off"]

    assert cache.fetch(server.url).path.read_bytes() == CONTENT
    assert server.requests == ["/file.bin?download=true"] * 2


def test_the_date_validates_where_the_tag_cannot(server: FileServer, cache: DownloadCache) -> None:
    server.tag, server.date = '"caf\xe9"', "Thu, 01 Jan 2026 00:00:00 GMT"
    server.faults = ["break off"]

    assert cache.fetch(server.url).path.read_bytes() == CONTENT
    assert server.requests[1].endswith(f" bytes={len(CONTENT) // 2}-")


@pytest.mark.parametrize("state", ['{"validator": "\\u00e9", "total": null}', '{"validator": 7, "total": 1}', "[]"])
def test_a_kept_state_of_no_use_begins_anew(state: str, server: FileServer, cache: DownloadCache) -> None:
    server.faults = ["break off"] * downloads.TRIES
    with pytest.raises(DownloadError):
        cache.fetch(server.url)
    next((cache.folder / "partial").glob("*.json")).write_text(state)

    assert cache.fetch(server.url).path.read_bytes() == CONTENT


@pytest.mark.parametrize("fault", ["503", "429", "no length", "redirect"])
def test_passing_trouble_passes(fault: str, server: FileServer, cache: DownloadCache) -> None:
    server.faults = [fault]

    assert cache.fetch(server.url).path.read_bytes() == CONTENT


def test_another_part_than_the_one_asked_for_is_not_glued_on(server: FileServer, cache: DownloadCache) -> None:
    server.faults = ["break off", "another part"]

    assert cache.fetch(server.url).path.read_bytes() == CONTENT


def test_a_part_that_the_server_never_has_is_named(server: FileServer, cache: DownloadCache) -> None:
    server.faults = ["break off", "503", "503", "416"]

    with pytest.raises(DownloadError, match="HTTP 416"):
        cache.fetch(server.url)


def test_a_redirects_body_is_not_read(server: FileServer, cache: DownloadCache) -> None:
    server.faults = ["redirect without end"] * 3
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert cache.fetch(server.url).path.read_bytes() == CONTENT
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10


def test_redirects_in_a_circle_end(server: FileServer, cache: DownloadCache) -> None:
    server.faults = ["redirect"] * 100

    with pytest.raises(DownloadError, match="more than 10 redirects"):
        cache.fetch(server.url)


def test_nothing_packed_is_unpacked(server: FileServer, cache: DownloadCache) -> None:
    server.faults = ["packed"] * downloads.TRIES

    with pytest.raises(DownloadError, match="packed as 'gzip, gzip', which was not asked for"):
        cache.fetch(server.url)


def test_what_a_server_says_steers_no_terminal(server: FileServer, cache: DownloadCache) -> None:
    server.faults = ["reason"]

    with pytest.raises(DownloadError, match="HTTP 404 \ufffd"):
        cache.fetch(server.url)


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "socks4://127.0.0.1:1", "nonsense://x", "http://"])
def test_a_proxy_of_no_use_is_said(
    server: FileServer, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("all_proxy", proxy)

    with pytest.raises(DownloadError):
        cache.fetch(server.url)


@pytest.mark.parametrize(
    "proxy", ["http://user:sec/ret@proxy", "http://user:secret@proxy:port", "sec://user:ret@proxy"]
)
def test_nothing_of_a_proxys_password_is_said(
    server: FileServer, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("all_proxy", proxy)

    with pytest.raises(DownloadError, match=r"the proxy that .* names cannot be used") as raised:
        cache.fetch(server.url)

    assert "sec" not in str(raised.value)


@pytest.mark.parametrize(
    ("faults", "free"),
    [([], [len(CONTENT) - 1]), (["no length"], [-1]), (["no length"], [100, 50, -1])],
    ids=["its length is known", "there is no room at all", "room ends meanwhile"],
)
def test_downloads_leave_a_part_of_the_disk_free(
    server: FileServer, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch, faults: list[str], free: list[int]
) -> None:
    looks = iter(free)
    monkeypatch.setattr(
        downloads.shutil, "disk_usage", lambda _: SimpleNamespace(free=downloads.LEAST_FREE + next(looks))
    )
    monkeypatch.setattr(downloads, "_ROOM_BYTES", 1)
    server.faults = faults

    with pytest.raises(DownloadError, match="it would leave less than 1 GiB free on the disk of"):
        cache.fetch(server.url)

    assert len(server.requests) == 1
    assert files_in(cache, "partial") == []


def test_a_missing_file_is_named_at_once(server: FileServer, cache: DownloadCache) -> None:
    server.faults = ["404"]

    with pytest.raises(DownloadError, match=r"/file.bin\?download=true: HTTP 404 Not Found"):
        cache.fetch(server.url)

    assert len(server.requests) == 1
    assert cache.find(server.url) is None


def test_an_unreachable_server_is_named_after_some_tries(cache: DownloadCache) -> None:
    with pytest.raises(DownloadError, match=r"http://127.0.0.1:1/x: .*\(4 tries\)"):
        cache.fetch("http://127.0.0.1:1/x")


def test_a_private_address_is_refused_at_once(cache: DownloadCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "FIRST_PAUSE", 10_000.0)
    monkeypatch.setattr(downloads, "LONGEST_PAUSE", 10_000.0)
    with pytest.raises(DownloadError, match=r"^http://10.1.2.3/x: 10.1.2.3 has no address on the internet; ROLLOUT_"):
        cache.fetch("http://10.1.2.3/x")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/file", "data:,x"])
def test_only_http_is_downloaded(url: str, cache: DownloadCache) -> None:
    with pytest.raises(DownloadError, match="only http and https"):
        cache.fetch(url)


def test_a_file_that_is_too_large_is_refused(
    server: FileServer, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "MAX_BYTES", 1000)
    with pytest.raises(DownloadError, match="larger than"):
        cache.fetch(server.url)
    server.faults = ["no length"]
    with pytest.raises(DownloadError, match="larger than"):
        cache.fetch(server.url)
    assert files_in(cache, "partial") == [], "nobody will ask for its rest"


def test_the_files_of_one_task_have_a_limit_together(
    server: FileServer, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "MAX_BYTES_TOGETHER", 2 * len(CONTENT))
    urls = [f"{server.url}&n={number}" for number in range(9)]

    cache.fetch_all(urls[:2])
    with pytest.raises(DownloadError, match=r"&n=2: with this one, the task's files are larger than .* together"):
        cache.fetch_all(urls)
    assert len(server.requests) == 3, "no other is asked for"


def test_one_task_has_a_limit_of_files(
    server: FileServer, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "MOST_FILES_TOGETHER", 2)
    with pytest.raises(DownloadError, match="the task names 3 files, more than 2"):
        cache.fetch_all([f"{server.url}&n={number}" for number in range(3)])
    assert server.requests == []


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.256/x",
        "http://☃/x",
        "http://[::1/x",
        "http://[fe80::1%☃]/x",
        "http://host/\udc80",
        f"http://host/{'a' * 70_000}",
    ],
)
def test_what_is_no_address_is_not_tried_again(url: str, cache: DownloadCache, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(downloads, "time", SimpleNamespace(sleep=pauses.append, time=time.time))
    with pytest.raises(DownloadError, match=r"^http://.*: is not a valid address: ") as caught:
        cache.fetch(url)
    assert len(str(caught.value)) < 1000
    assert pauses == []
    with pytest.raises(requests.ConnectionError):
        public_http.request("GET", url, timeout=(1.0, 1.0))


def test_a_damaged_object_is_downloaded_again(server: FileServer, cache: DownloadCache) -> None:
    found = cache.fetch(server.url)
    found.path.write_bytes(b"cut")

    assert cache.find(server.url) is None
    assert cache.fetch(server.url).path.read_bytes() == CONTENT


def test_a_copy_may_be_changed_without_harm(server: FileServer, cache: DownloadCache, tmp_path: Path) -> None:
    copy = tmp_path / "task" / "a" / "file.bin"
    cache.copy(server.url, copy)
    copy.write_bytes(b"changed")

    assert cache.fetch(server.url).path.read_bytes() == CONTENT


def fetch_and_say(folder: Path, url: str, said: object) -> None:
    said.send(DownloadCache(folder).fetch(url).sha256)  # type: ignore[attr-defined]


def test_a_process_killed_before_an_entry_has_its_name_leaves_nothing_for_good(
    server: FileServer, cache: DownloadCache
) -> None:
    child = os.fork()
    if child == 0:

        def kill(event: str, arguments: tuple[object, ...]) -> None:
            if event == "os.rename" and Path(str(arguments[0])).parent.name == "urls":
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(kill)
            cache.fetch(server.url)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert len(files_in(cache, "urls")) == 1

    cache.fetch(server.url)

    assert [Path(name).suffix for name in files_in(cache, "urls")] == [".json"]


def test_many_processes_download_one_url_once(server: FileServer, cache: DownloadCache) -> None:
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(4)]
    processes = [context.Process(target=fetch_and_say, args=(cache.folder, server.url, end)) for _, end in pipes]
    for process in processes:
        process.start()
    said = {ours.recv() for ours, _ in pipes}
    for process in processes:
        process.join()

    assert len(said) == 1
    assert len(server.requests) == 1


def test_a_broken_entry_counts_as_none(server: FileServer, cache: DownloadCache) -> None:
    cache.fetch(server.url)
    entry = next((cache.folder / "urls").iterdir())
    for broken in ("", "[]", json.dumps({"sha256": "../../x", "size": 3})):
        entry.write_text(broken)
        assert cache.find(server.url) is None
