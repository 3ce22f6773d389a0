"""Web runs through the command: the example's record is replayed, and a run that visits a site is replayed without the site."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.environments.web.page_reader import PACKAGES
from tests.acceptance.commands import rollouts
from tests.conftest import REPOSITORY
from tests.integration.environments.web.hostile_site import HostileSite
from tests.integration.environments.web.search_server import KEY, StandInSearch

for package in PACKAGES:
    pytest.importorskip(package, reason="the extra web is not installed")
pytestmark = pytest.mark.slow
EXAMPLE = REPOSITORY / "examples" / "web"
COMMON = ("--env-mode", "web", "--metric", "contains_answer", "--num-rollouts", "1", "--json")


@pytest.fixture
def search() -> Iterator[StandInSearch]:
    search = StandInSearch()
    yield search
    search.close()


def messages(folder: Path, run: str) -> Any:
    return json.loads((folder / "results" / run / "museum" / "0" / "attempt-1" / "messages.json").read_text())[
        "messages"
    ]


def test_the_examples_record_is_replayed(tmp_path: Path) -> None:
    record = ("--web-search", "searxng", "--web-cache", "replay", "--web-cache-dir", str(EXAMPLE / "record"))

    done = rollouts(tmp_path, "run", "--data-path", str(EXAMPLE / "items.jsonl"), *COMMON, *record)

    assert done.returncode == 0, done.stderr
    end = json.loads(done.stdout)
    assert (end["completed"], end["summary"]["average_score"]) == (3, 1.0)


def test_a_run_is_recorded_and_replayed_without_its_site(
    site: HostileSite, search: StandInSearch, tmp_path: Path
) -> None:
    calls = [
        ("web_search", {"queries": ["tide museum"]}),
        ("web_visit", {"urls": [f"{site.url}/museum", f"{site.url}/loop"], "goal": "Who founded the museum?"}),
        ("web_visit", {"urls": [f"{site.url}/slow"], "goal": "What is slow?"}),
        ("web_find", {"url": f"{site.url}/pdf", "text": "seals"}),
        ("web_visit", {"urls": ["http://127.0.0.1:6379/"], "goal": "What is there?"}),
    ]
    turns: list[dict[str, Any]] = [{"tool_calls": [{"name": name, "arguments": given}]} for name, given in calls]
    item = {
        "id": "museum",
        "question": "Who founded it?",
        "answer": "Ida Marsh",
        "script": [*turns, {"text": "Ida Marsh."}],
    }
    (tmp_path / "items.jsonl").write_text(json.dumps(item))
    variables = {"ROLLOUT_WEB_HOSTS": site.host, "ROLLOUT_SEARCH_URL": search.url, "ROLLOUT_SEARCH_KEY": KEY}
    options = (
        "--data-path",
        "items.jsonl",
        *COMMON,
        "--web-cache-dir",
        "record",
        "--web-visit-timeout",
        "3",
        "--web-delay",
        "0",
    )

    recorded = rollouts(tmp_path, "run", *options, "--web-cache", "record", "--run-id", "first", **variables)
    assert recorded.returncode == 0, recorded.stderr
    site.close()
    search.close()
    replayed = rollouts(tmp_path, "run", *options, "--web-cache", "replay", "--run-id", "second")
    assert replayed.returncode == 0, replayed.stderr

    assert messages(tmp_path, "second") == messages(tmp_path, "first")
    said = "\n".join(str(message["content"]) for message in messages(tmp_path, "first") if message["role"] == "tool")
    assert "1. The Tide Museum" in said
    assert "founded in 1887 by Ida Marsh" in said
    assert "its server answers with more than 10 redirects" in said
    assert "it did not come within 3 s" in said
    assert "4217 seals" in said
    assert "127.0.0.1 has no address on the internet" in said
    assert json.loads(recorded.stdout)["summary"]["average_score"] == 1.0
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [
        path for path in written if KEY.encode() in path.read_bytes() or search.url.encode() in path.read_bytes()
    ] == []
