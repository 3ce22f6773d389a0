"""The pages that an episode reads: from the record if there is one, else from the web."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import httpx

from benchmark.deadline import Deadline
from rollout_tasks.environments.web.download import download, page_url
from rollout_tasks.environments.web.page_reader import LONGEST_TITLE, cleaned, read_page, wait_until_imported
from rollout_tasks.environments.web.politeness import Politeness, check_domain, seconds_left
from rollout_tasks.environments.web.record_files import RecordDamagedError
from rollout_tasks.environments.web.recording import Recording
from rollout_tasks.environments.web.refusal import Refused, RefusedForNow
from rollout_tasks.unicode_text import printable_line
from rollout_tasks.web_config import WebConfig

_PAGES_KEPT = 20
"""In memory, so that finding and scrolling need not read a page again."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was read."""

    url: str
    """Where it was at the end of all redirects."""
    title: str
    text: str

    @property
    def heading(self) -> str:
        """Its address with its title and length."""
        title = f" ({self.title})" if self.title else ""
        return f"{self.url}{title}, {len(self.text):,} characters"


class Pages:
    """One episode's."""

    def __init__(self, config: WebConfig, recording: Recording) -> None:
        """Reads nothing yet."""
        self._config = config
        self._recording = recording
        self._politeness = Politeness(config)
        self._kept: OrderedDict[str, Page] = OrderedDict()

    def read(self, address: str) -> Page:
        """Returns the page at an address, as a model wrote it.

        Raises:
            Refused: There is none to read; the message says why.
            RuntimeError: Pages cannot be read here, or the record is damaged.
        """
        url = page_url(address)
        check_domain(url.host, self._config.exclude)
        key = str(url)
        if key not in self._kept:
            answer = self._recording.answer("page", {"url": key}, lambda: self._fetched(url))
            self._kept[key] = self._page(answer)
            if len(self._kept) > _PAGES_KEPT:
                self._kept.popitem(last=False)
        return self._kept[key]

    def _page(self, answer: Any) -> Page:
        match answer:
            case {"refused": str(clause)}:
                raise Refused(clause)
            case {"url": str(url), "title": str(title), "text": str(text)}:
                check_domain(page_url(url).host, self._config.exclude)
                shown = str(httpx.URL(url).copy_with(userinfo=b""))
                return Page(shown, printable_line(title, LONGEST_TITLE), cleaned(text))
        raise RecordDamagedError("the record of a page is not one")

    def _fetched(self, url: httpx.URL) -> dict[str, str]:
        """Returns the page at an address, or why there is none, as it is recorded."""
        wait_until_imported()
        deadline = Deadline(self._config.visit_seconds)
        try:
            found = download(
                url, deadline, self._config.user_agent, lambda each: self._politeness.before(each, deadline)
            )
            said = read_page(found.body, found.media_type, found.charset, found.url, seconds_left(deadline))
        except RefusedForNow:
            raise
        except Refused as refused:
            return {"refused": str(refused)}
        return {"url": found.url, "title": said.title, "text": said.text}
