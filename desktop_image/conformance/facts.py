"""What is known of a guest's image, and how that travels: found once, then kept in a file and told to whoever submits a run."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

VERSION = 2
"""Of what facts hold: another one, and they are found anew."""
LARGEST_BYTES = 64 << 20
"""Of facts when they are unpacked; those of a full image have a tenth of it."""


class FactsUnreadable(ValueError):
    """Text that holds no facts."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What guests of one image have."""

    there: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Names by kind."""
    titles: frozenset[str] = frozenset()
    """Of the windows that its programs open."""
    classes: frozenset[str] = frozenset()
    """Instance and class of those windows: ``Mail.thunderbird``."""
    applications: frozenset[str] = frozenset()
    """How those programs call themselves in the accessibility tree."""

    def has(self, kind: str, name: str) -> bool:
        """Whether something of a kind is there."""
        return name in self.there.get(kind, ())

    def with_networks(self, networks: Iterable[str]) -> Facts:
        """The same guests where they may go elsewhere: ``internet``, or hosts."""
        return replace(self, there={**self.there, "network": frozenset(networks)})


def packed(facts: Facts) -> str:
    """Facts as text."""
    document = {
        "version": VERSION,
        "there": {kind: sorted(names) for kind, names in facts.there.items()},
        "windows": {name: sorted(getattr(facts, name)) for name in ("titles", "classes", "applications")},
    }
    return base64.b64encode(zlib.compress(json.dumps(document).encode(), 9)).decode()


def unpacked(text: str) -> Facts:
    """The facts in a text.

    Raises:
        FactsUnreadable: It holds none.
    """
    document = unpacked_json(text)
    if document.get("version") != VERSION:
        raise FactsUnreadable(f"these facts about a guest are of version {document.get('version')!r}, not {VERSION}")
    there, windows = document.get("there"), document.get("windows")
    if not isinstance(there, dict) or not isinstance(windows, dict):
        raise FactsUnreadable("these are no facts about a guest")
    return Facts(by_kind(there), **{name: _names(windows.get(name)) for name in ("titles", "classes", "applications")})


def unpacked_json(text: str) -> dict[str, Any]:
    """A compressed JSON object, never more than `LARGEST_BYTES` of it.

    Raises:
        FactsUnreadable: It is none.
    """
    try:
        opened = zlib.decompressobj()
        data = opened.decompress(base64.b64decode(text, validate=True), LARGEST_BYTES)
        document = json.loads(data) if opened.eof else None
    except (ValueError, binascii.Error, zlib.error, RecursionError) as error:
        raise FactsUnreadable(f"these are no facts about a guest: {error}") from error
    if not isinstance(document, dict):
        raise FactsUnreadable("these are no facts about a guest")
    return document


def by_kind(document: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Lists of names by kind; whatever is none is passed over."""
    return {str(kind): _names(names) for kind, names in document.items()}


def _names(value: Any) -> frozenset[str]:
    return frozenset(name for name in value if isinstance(name, str)) if isinstance(value, list) else frozenset()
