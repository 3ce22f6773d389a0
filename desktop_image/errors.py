"""Errors of guest images."""

from __future__ import annotations


class GuestBuildError(Exception):
    """A guest image cannot be built here; one sentence says why and what to do."""
