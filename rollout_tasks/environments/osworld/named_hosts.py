"""The addresses and hosts of the internet that a task names: its code may ask only those, through the worker."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

ASKED_BY_ITSELF = frozenset({"ipapi.co"})
"""Hosts that desktop-env's getters ask although no task names them: for the worker's location, for times of day."""
_URL = re.compile(r"https?://[^\s\"'<>\\]+")


def named_hosts(task: Mapping[str, Any]) -> frozenset[str]:
    """Returns the hosts, in lower case, of every URL in a task's setup and evaluator."""
    found = set(ASKED_BY_ITSELF)
    for url in named_urls(task):
        try:
            host = urlsplit(url).hostname
        except ValueError:
            continue
        if host:
            found.add(host)
    return frozenset(found)


def named_urls(task: Mapping[str, Any]) -> frozenset[str]:
    """Returns every URL in a task's setup and evaluator, as it is written there."""
    return frozenset(url for text in _texts([task["config"], task["evaluator"]]) for url in _URL.findall(text))


def _texts(value: Any) -> Iterator[str]:
    """Yields every text in a JSON value; a task's depth was limited when it was read."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
