"""Questions that are answered from the web: an agent searches, visits pages, and finds and scrolls in them.

Scores come from comparing the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import Environment, EnvironmentContext, Observation, Tool, ToolCall, ToolResult
from rollout_tasks.environments.web import page_reader, passages
from rollout_tasks.environments.web.download import page_url
from rollout_tasks.environments.web.pages import Page, Pages
from rollout_tasks.environments.web.politeness import check_domain
from rollout_tasks.environments.web.record_files import RecordDamagedError
from rollout_tasks.environments.web.recording import Recording
from rollout_tasks.environments.web.refusal import Refused
from rollout_tasks.environments.web.search import (
    Result,
    SearchService,
    SearchUnavailableError,
    recorded_result,
)
from rollout_tasks.environments.web.summary import seen_toward
from rollout_tasks.environments.web.tools import INSTRUCTIONS, TOOLS
from rollout_tasks.errors import UserError
from rollout_tasks.unicode_text import one_line

_SHOWN = 300
"""Characters of an address or a query that an answer repeats."""


class WebEnvironment(Environment):
    """Questions with search and pages."""

    needs_vm: ClassVar[bool] = False
    compares_answers: ClassVar[bool] = True
    asks_model: ClassVar[bool] = True
    queue: ClassVar[str] = "rollout.web"
    default_agent: ClassVar[str] = "tool_calling"

    def __init__(self, context: EnvironmentContext) -> None:
        """Asks nobody yet."""
        self._config = context.config.web
        self._model = context.model
        self._recording = Recording(self._config.cache, self._config.cache_folder)
        self._pages = Pages(self._config, self._recording)
        self._search: SearchService | None = None
        self._scrolled: dict[str, int] = {}
        """Where the next part of a page begins, by its address."""

    @classmethod
    def check_available(cls) -> None:
        """Checks that pages can be read here: packages and cells."""
        page_reader.check_available()

    @classmethod
    def preload(cls) -> None:
        """Begins to import what reads pages, in the process that cells are forked from."""
        page_reader.preload()

    @classmethod
    def check_item(cls, config: RunConfig, item: Item) -> None:  # noqa: ARG003
        """Checks that there is a record to replay."""
        folder = config.web.cache_folder
        if config.web.cache == "replay" and folder is not None and not folder.is_dir():
            raise UserError(f"--web-cache-dir: there is no folder {folder} to replay from")

    @classmethod
    def unmet(cls, config: RunConfig, items: Sequence[Item]) -> list[str]:  # noqa: ARG003
        """Says if this machine cannot search; workers elsewhere may be set up differently."""
        if config.web.cache == "replay":
            return []
        try:
            SearchService(config.web.search)
        except SearchUnavailableError as error:
            return [f"web_search cannot be used from here: {error}"]
        return []

    def instructions(self, item: Item) -> str:  # noqa: ARG002
        """See `Environment`."""
        return INSTRUCTIONS

    def tools(self) -> list[Tool]:
        """Returns the four tools."""
        return list(TOOLS)

    def reset(self, item: Item) -> Observation:  # noqa: ARG002
        """Returns an empty observation; fails if a search could not be made later."""
        if self._config.cache != "replay":
            self._search = SearchService(self._config.search)
        return Observation()

    def execute(self, call: ToolCall) -> ToolResult:
        """Searches, visits, finds or scrolls; ``failed`` if nothing of what was asked for can be had, and why."""
        arguments = call.arguments
        match call.name:
            case "web_search":
                return _together(arguments["queries"], self._searched, "Search")
            case "web_visit":
                return _together(arguments["urls"], lambda url: self._visited(url, arguments["goal"]), "Page")
            case "web_find":
                return _together([arguments["url"]], lambda url: self._found(url, arguments["text"]), "Page")
            case "web_scroll":
                return _together([arguments["url"]], lambda url: self._scroll(url, arguments.get("start")), "Page")
        return ToolResult("failed", f"Tool {call.name!r} not found")

    def _searched(self, query: str) -> str:
        query = " ".join(query.split())
        if not query:
            raise Refused("it has no words")
        question = {"service": self._config.search, "query": query}
        answer = self._recording.answer("search", question, lambda: self._results(query))
        lines = [f"Results for {query!r}:"]
        for one in self._allowed(_results_in(answer)):
            excerpt = f"\n   {one.snippet}" if one.snippet else ""
            lines.append(f"{len(lines)}. {one.title or one.url}\n   {one.url}{excerpt}")
            if len(lines) > self._config.results:
                break
        return "\n".join(lines) if len(lines) > 1 else f"No results for {query!r}."

    def _results(self, query: str) -> dict[str, Any]:
        """Returns what is found, as it is recorded."""
        if self._search is None:
            self._search = SearchService(self._config.search)
        try:
            return {"results": [[one.title, one.url, one.snippet] for one in self._search.results(query)]}
        except Refused as refused:
            return {"refused": str(refused)}

    def _allowed(self, results: Iterable[Result]) -> Iterable[Result]:
        """Yields the results that may be visited."""
        for result in results:
            try:
                check_domain(page_url(result.url).host, self._config.exclude)
            except Refused:
                continue
            yield result

    def _visited(self, url: str, goal: str) -> str:
        page = self._pages.read(url)
        return f"{page.heading}:\n{seen_toward(' '.join(goal.split()), page, self._model, self._recording)}"

    def _found(self, url: str, wanted: str) -> str:
        page = self._pages.read(url)
        count, found = passages.places(page.text, wanted)
        if not found:
            return f"{page.heading}: {wanted!r} is not in it."
        many = "once" if count == 1 else f"{count:,} times"
        return "\n\n".join(
            [f"{page.heading}: {wanted!r} is in it {many}.", *(f"[{at:,}] {said}" for at, said in found)]
        )

    def _scroll(self, url: str, start: int | None) -> str:
        page = self._pages.read(url)
        begin = self._scrolled.get(page.url, 0) if start is None else start
        shown = passages.part(page.text, begin)
        if not shown:
            raise Refused(f"it has {len(page.text):,} characters, and none from {begin:,} on")
        end = begin + len(shown)
        self._scrolled[page.url] = end
        return f"{page.heading}, from {begin:,} to {end:,}{_end_of(page, end)}:\n{shown}"


def _end_of(page: Page, end: int) -> str:
    return ", its end" if end == len(page.text) else ""


def _results_in(answer: Any) -> list[Result]:
    match answer:
        case {"refused": str(clause)}:
            raise Refused(clause)
        case {"results": list(rows)} if all(_is_result(row) for row in rows):
            return [recorded_result(*row) for row in rows]
    raise RecordDamagedError("the record of a search is not one")


def _is_result(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 3 and all(isinstance(text, str) for text in row)


def _together(asked: Sequence[str], answer: Callable[[str], str], what: str) -> ToolResult:
    """Returns one result for all that was asked for; what cannot be had is said in a sentence among the others."""
    said, refused = [], 0
    for one in asked:
        try:
            said.append(answer(one))
        except Refused as refusal:
            refused += 1
            said.append(f"{what} {one_line(one)[:_SHOWN]!r}: {refusal}.")
    return ToolResult("failed" if refused == len(asked) else "success", "\n\n".join(said))
