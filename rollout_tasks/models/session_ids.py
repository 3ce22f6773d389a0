"""Names of sessions: one attempt's model calls, which stay with one replica and are recorded together."""

from __future__ import annotations

from urllib.parse import quote

LONGEST_SESSION_ID = 1_000
"""Characters; those of the longest ids of a run and an item, percent-encoded, are about 700."""


def session_id(run_id: str, item_id: str, index: int, attempt: int) -> str:
    """Returns the name of one attempt's session; its parts are percent-encoded, as ids may contain anything."""
    return "/".join(quote(str(part), safe="") for part in (run_id, item_id, index, attempt))
