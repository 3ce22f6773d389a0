"""The options of runs that search and read the web. The search service's address and key are in `settings`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import field_validator, model_validator

from rollout_tasks.config_fields import FilePath, Part, option
from rollout_tasks.validation_messages import shown

USER_AGENT = "computer-use-rollouts"
_DOMAIN = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_USER_AGENT = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9._-]+)?( [\x20-\x7e]*)?")


class WebConfig(Part):
    """What a web environment asks, and how politely; other environments ignore it."""

    search: Literal["serper", "searxng", "tavily"] = option(
        "serper",
        "What the search service speaks; ROLLOUT_SEARCH_URL and ROLLOUT_SEARCH_KEY are its address and key.",
        "--web-search",
    )
    results: int = option(5, "Results of one search query.", "--web-results", ge=1, le=10)
    exclude: tuple[str, ...] = option(
        (), "A domain whose pages are neither found nor visited, with all below it; repeatable.", "--web-exclude"
    )
    cache: Literal["off", "record", "replay"] = option(
        "off", "Record pages and search results, or replay what was recorded instead of asking for it.", "--web-cache"
    )
    cache_folder: FilePath | None = option(None, "The folder of what was recorded.", "--web-cache-dir")
    visit_seconds: float = option(
        30.0, "Seconds that reading one page may take, redirects included.", "--web-visit-timeout", gt=0, le=600
    )
    delay: float = option(
        1.0, "Seconds between two requests of one machine to one host, at least.", "--web-delay", ge=0, le=60
    )
    user_agent: str = option(
        USER_AGENT, "What sites are told; robots.txt is read for its first word.", "--web-user-agent", max_length=200
    )

    @field_validator("exclude")
    @classmethod
    def _are_domains(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        domains = tuple(word.strip().lower().strip(".") for word in words)
        for word, domain in zip(words, domains, strict=True):
            if not _DOMAIN.fullmatch(domain):
                raise ValueError(f"must be a domain, as in example.org, got {shown(word)}")
        return domains

    @field_validator("user_agent")
    @classmethod
    def _is_user_agent(cls, text: str) -> str:
        if not _USER_AGENT.fullmatch(text):
            raise ValueError(f"must look like name/1.0 (more about it), got {shown(text)}")
        return text

    @model_validator(mode="after")
    def _has_folder(self) -> WebConfig:
        if self.cache != "off" and self.cache_folder is None:
            raise ValueError(f"cache {self.cache} needs a folder: --web-cache-dir FOLDER")
        return self

    def resolved(self) -> WebConfig:
        """Returns the same with an absolute folder, which workers find wherever they run."""
        if self.cache_folder is None:
            return self
        return self.model_copy(update={"cache_folder": Path(self.cache_folder).resolve()})
