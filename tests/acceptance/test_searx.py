"""A run that searches through a real search server of one's own, searx from Debian, over pages of this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import yaml

from rollout_tasks.environments.web.page_reader import PACKAGES
from tests.acceptance.commands import rollouts
from tests.conftest import free_port
from tests.hostile.random_replies.answers import Answer, AnswerServer, Request
from tests.integration.environments.web.hostile_site import HostileSite
from tests.virtual_machines import wait_until

for package in PACKAGES:
    pytest.importorskip(package, reason="the extra web is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("searx-run") is None, reason="Debian's package searx is not installed"),
]
SHARED = "/usr/share/python3-searx"
WORDS = {"tide", "museum"}


class Index:
    """The pages that the search server asks for what it should find."""

    def __init__(self, page: str) -> None:
        self.page = page
        self.server = AnswerServer(self._answer)

    def _answer(self, request: Request) -> Answer:
        asked = set(parse_qs(urlsplit(request.path).query)["q"][0].lower().split())
        hits = [{"address": self.page, "name": "The Tide Museum", "text": "Founded long ago."}] if asked & WORDS else []
        return Answer(json.dumps({"hits": hits}).encode())


def settings(index: Index, port: int) -> str:
    """What the server reads: one engine, and what it does not start without."""
    engine = {
        "name": "pages",
        "engine": "json_engine",
        "shortcut": "p",
        "categories": "general",
        "search_url": f"http://127.0.0.1:{index.server.port}/?q={{query}}",
        "results_query": "hits",
        "url_query": "address",
        "title_query": "name",
        "content_query": "text",
        "enable_http": True,
    }
    ui = {"static_path": f"{SHARED}/static", "templates_path": f"{SHARED}/templates", "default_theme": "simple"}
    unused = {"query_in_title": False, "infinite_scroll": False, "advanced_search": False, "theme_args": {}}
    address = {"bind_address": "127.0.0.1", "port": port, "base_url": False}
    return yaml.safe_dump(
        {
            "general": {"debug": False, "instance_name": "pages", "contact_url": False},
            "brand": {"git_url": "", "git_branch": "", "docs_url": "", "wiki_url": "", "issue_url": ""},
            "search": {"safe_search": 0, "autocomplete": "", "default_lang": "", "formats": ["html", "json"]}
            | {"ban_time_on_fail": 0, "max_ban_time_on_fail": 0},
            "server": {**address, "secret_key": "only-for-this-test", "image_proxy": False, "method": "GET"}
            | {"http_protocol_version": "1.0", "default_http_headers": {}},
            "ui": {**ui, **unused, "default_locale": "", "results_on_new_tab": False, "center_alignment": False},
            "outgoing": {"request_timeout": 5.0, "useragent_suffix": "", "enable_http2": False}
            | {"pool_connections": 10, "pool_maxsize": 10, "keepalive_expiry": 5.0},
            "locales": {"en": "English"},
            "doi_resolvers": {"none": "http://127.0.0.1/"},
            "default_doi_resolver": "none",
            "engines": [engine],
        }
    )


@pytest.fixture
def index(site: HostileSite) -> Iterator[Index]:
    index = Index(f"{site.url}/museum")
    yield index
    index.server.close()


class Searx:
    """The server, until `close`."""

    def __init__(self, index: Index, folder: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        path = folder / "searx.yml"
        path.write_text(settings(index, port), encoding="utf-8")
        self._log = (folder / "searx.log").open("wb")
        self._process = subprocess.Popen(
            ["searx-run"],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "SEARX_SETTINGS_PATH": str(path), "HOME": str(folder)},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until(self._answers, seconds=60)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends it."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)
        self._log.close()

    def _answers(self) -> bool:
        try:
            return httpx.get(self.url).status_code == 200
        except httpx.HTTPError:
            return False


def ran(folder: Path, run: str, *options: str, **variables: str) -> dict[str, object]:
    """What a run came to whose agent searches, visits what was found, and answers."""
    page = variables.pop("page")
    calls = [("web_search", {"queries": ["tide museum", "whales"]}), ("web_find", {"url": page, "text": "founded"})]
    turns: list[dict[str, object]] = [{"tool_calls": [{"name": name, "arguments": given}]} for name, given in calls]
    item = {
        "id": "one",
        "question": "Who founded it?",
        "answer": "Ida Marsh",
        "script": [*turns, {"text": "Ida Marsh"}],
    }
    (folder / "items.jsonl").write_text(json.dumps(item), encoding="utf-8")
    common = ("--env-mode", "web", "--metric", "contains_answer", "--num-rollouts", "1", "--web-search", "searxng")
    options = (*common, "--max-attempts", "1", "--web-cache-dir", "record", "--web-delay", "0", "--json", *options)
    done = rollouts(folder, "run", "--data-path", "items.jsonl", *options, "--run-id", run, **variables)
    return {"code": done.returncode, "stderr": done.stderr, **json.loads(done.stdout)}


def said(folder: Path, run: str) -> list[str]:
    path = folder / "results" / run / "one" / "0" / "attempt-1" / "messages.json"
    messages = json.loads(path.read_text(encoding="utf-8"))["messages"]
    return [str(message["content"]) for message in messages if message["role"] == "tool"]


def test_what_a_real_search_server_finds_is_read_recorded_and_replayed_without_it(
    site: HostileSite, index: Index, tmp_path: Path
) -> None:
    searx = Searx(index, tmp_path)
    where = {"ROLLOUT_SEARCH_URL": searx.url, "ROLLOUT_WEB_HOSTS": site.host, "page": index.page}
    try:
        first = ran(tmp_path, "first", "--web-cache", "record", **where)
    finally:
        searx.close()
    site.close()
    second = ran(tmp_path, "second", "--web-cache", "replay", page=index.page)

    assert (first["code"], first["completed"]) == (0, 1), first
    assert (second["code"], second["completed"]) == (0, 1), second
    found, read = said(tmp_path, "first")
    assert "1. The Tide Museum" in found
    assert index.page in found
    assert "whales" in found
    assert "founded in 1887 by Ida Marsh" in read
    assert said(tmp_path, "second") == [found, read]
