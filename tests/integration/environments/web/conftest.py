"""A hostile site, a stand-in search service, and a web environment that may visit the one and asks the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import EnvironmentContext, TextModel, ToolCall, ToolResult
from rollout_tasks.environments.web.environment import WebEnvironment
from rollout_tasks.environments.web.page_reader import wait_until_imported
from rollout_tasks.settings import settings
from tests.cells_here import no_cells_here
from tests.integration.environments.web.hostile_site import HostileSite
from tests.integration.environments.web.hostile_site import site_fixture as site
from tests.integration.environments.web.search_server import KEY, StandInSearch

__all__ = ["site"]
ITEM = Item(id="1", question="Who founded the museum?", answer="Ida Marsh")


@pytest.fixture(scope="session")
def cells() -> None:
    """For tests that read pages: skips them where that cannot be done."""
    try:
        WebEnvironment.check_available()
        wait_until_imported()
    except RuntimeError as reason:
        no_cells_here(str(reason))


@pytest.fixture
def search() -> Iterator[StandInSearch]:
    search = StandInSearch()
    yield search
    search.close()


class Web:
    """A web environment with its tools as functions."""

    def __init__(self, model: TextModel | None, **options: Any) -> None:
        config = RunConfig.model_validate({"env_mode": "web", "web": {"delay": 0, "search": "searxng", **options}})
        self.environment = WebEnvironment(EnvironmentContext(config, Path(), None, model=model))
        self.environment.reset(ITEM)

    def call(self, tool: str, **arguments: Any) -> ToolResult:
        return self.environment.execute(ToolCall("c", f"web_{tool}", arguments))

    def visit(self, *urls: str, goal: str = "who founded it") -> ToolResult:
        return self.call("visit", urls=list(urls), goal=goal)

    def search(self, *queries: str) -> ToolResult:
        return self.call("search", queries=list(queries))


Opened = Callable[..., Web]


@pytest.fixture
def web(site: HostileSite, search: StandInSearch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Opened:
    """Opens an environment: ``web(model=..., cache="record", ...)``; the site alone may be visited on loopback."""
    monkeypatch.setenv("ROLLOUT_WEB_HOSTS", site.host)
    monkeypatch.setenv("ROLLOUT_SEARCH_URL", search.url)
    monkeypatch.setenv("ROLLOUT_SEARCH_KEY", KEY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    settings.cache_clear()

    def opened(model: TextModel | None = None, **options: Any) -> Web:
        return Web(model, **options)

    return opened
