"""Why a page or a search has no result: one sentence, which becomes the tool's answer."""

from __future__ import annotations

from rollout_tasks.unicode_text import one_line

_LONGEST = 300


class Refused(Exception):
    """There is no result; the message is a clause that is safe to show, as in ``it is larger than 32 MiB``."""

    def __init__(self, clause: str) -> None:
        super().__init__(one_line(clause)[:_LONGEST])


class RefusedForNow(Refused):
    """This machine could not ask now; that says nothing of the page, and is not recorded."""
