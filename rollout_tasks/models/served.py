"""By whom a reply was made: the replica, and the weights that it had meanwhile."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """A part of the sampled tokens, and the version of the weights that they were sampled with."""

    version: str
    start: int
    """The first token's index."""
    end: int
    """The index after the last token."""


@dataclass(frozen=True, slots=True)
class Served:
    """Which replica answered a call, with which weights; a field is empty where it is not known."""

    replica: str = ""
    version_at_start: str = ""
    version_at_end: str = ""
    spans: tuple[VersionSpan, ...] = ()
