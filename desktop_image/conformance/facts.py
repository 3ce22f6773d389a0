"""Facts about a guest's image and their text format; found once, kept in a file, and used when runs are submitted."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

VERSION = 2
"""Version of the facts' content; facts of another version are found again."""
LARGEST_BYTES = 64 << 20
"""Largest size of unpacked facts; those of a full image have a tenth of it."""


class FactsUnreadable(ValueError):
    """The text is not facts."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What guests of one image have."""

    there: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Names of what guests have, by kind."""
    titles: frozenset[str] = frozenset()
    """Titles of the windows that its programs open."""
    classes: frozenset[str] = frozenset()
    """Instance and class of those windows: ``Mail.thunderbird``."""
    applications: frozenset[str] = frozenset()
    """Names of those programs in the accessibility tree."""

    def has(self, kind: str, name: str) -> bool:
        """Whether guests have something of a kind."""
        return name in self.there.get(kind, ())

    def with_networks(self, networks: Iterable[str]) -> Facts:
        """Returns the same facts with other reachable networks: ``internet``, or hosts."""
        return replace(self, there={**self.there, "network": frozenset(networks)})


def packed(facts: Facts) -> str:
    """Returns facts as text."""
    document = {
        "version": VERSION,
        "there": {kind: sorted(names) for kind, names in facts.there.items()},
        "windows": {name: sorted(getattr(facts, name)) for name in ("titles", "classes", "applications")},
    }
    return base64.b64encode(zlib.compress(json.dumps(document).encode(), 9)).decode()


def unpacked(text: str) -> Facts:
    """Returns the facts in a text.

    Raises:
        FactsUnreadable: The text is not facts.
    """
    document = unpacked_json(text)
    if document.get("version") != VERSION:
        raise FactsUnreadable(f"these facts about a guest are of version {document.get('version')!r}, not {VERSION}")
    there, windows = document.get("there"), document.get("windows")
    if not isinstance(there, dict) or not isinstance(windows, dict):
        raise FactsUnreadable("these are not facts about a guest")
    return Facts(by_kind(there), **{name: _names(windows.get(name)) for name in ("titles", "classes", "applications")})


def unpacked_json(text: str) -> dict[str, Any]:
    """Returns a compressed JSON object, unpacking at most `LARGEST_BYTES`.

    Raises:
        FactsUnreadable: The text is not such an object.
    """
    try:
        opened = zlib.decompressobj()
        data = opened.decompress(base64.b64decode(text, validate=True), LARGEST_BYTES)
        document = json.loads(data) if opened.eof else None
    except (ValueError, binascii.Error, zlib.error, RecursionError) as error:
        raise FactsUnreadable(f"these are not facts about a guest: {error}") from error
    if not isinstance(document, dict):
        raise FactsUnreadable("these are not facts about a guest")
    return document


def by_kind(document: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Returns sets of names by kind; values that are not lists of names are ignored."""
    return {str(kind): _names(names) for kind, names in document.items()}


def _names(value: Any) -> frozenset[str]:
    return frozenset(name for name in value if isinstance(name, str)) if isinstance(value, list) else frozenset()
