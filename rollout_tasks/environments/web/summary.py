"""What a page says toward a goal, in the words of the run's model."""

from __future__ import annotations

import hashlib

from rollout_tasks.environments.base import TextModel, TextTooLong
from rollout_tasks.environments.web.pages import Page
from rollout_tasks.environments.web.record_files import RecordDamagedError
from rollout_tasks.environments.web.recording import Recording
from rollout_tasks.page_summary import SUMMARY_SYSTEM, summary_question
from rollout_tasks.unicode_text import printable, storable

MOST_READ = 50_000
"""Characters of a page that the model is given, from its beginning."""
LONGEST_SUMMARY = 20_000
_TRIES = 4
"""Each with half as much of the page as the one before, if the model's context is too small."""
_SHOWN_WITHOUT = 2_000
"""Characters of a page that are shown if the model writes nothing."""


def seen_toward(goal: str, page: Page, model: TextModel | None, recording: Recording) -> str:
    """Returns what the agent is told of a page.

    Args:
        goal: What the agent wants to know.
        page: The page.
        model: Who sums it up; None shows the page's text.
        recording: Where summaries are recorded: of the same text and goal there is one.

    Raises:
        RolloutFailure: The model gives no reply.
    """
    beginning = page.text[:MOST_READ]
    cut = (
        f"\n(The first {MOST_READ:,} characters were read; web_find and web_scroll read on.)"
        if beginning != page.text
        else ""
    )
    if model is None:
        return f"{beginning}{cut}"
    asked = {"text": hashlib.sha256(beginning.encode()).hexdigest(), "goal": goal}
    said = recording.answer("summary", asked, lambda: _summary(goal, beginning, model), asks_in_replay=True)
    if not isinstance(said, str):
        raise RecordDamagedError("the record of a summary is not one")
    said = printable(storable(said))[:LONGEST_SUMMARY]
    if not said:
        return f"The model wrote no summary. The page begins:\n{beginning[:_SHOWN_WITHOUT]}"
    return f"{said}{cut}"


def _summary(goal: str, text: str, model: TextModel) -> str:
    """Returns the model's summary; empty if it writes none, or if even a small part of the text is too long for it."""
    length = len(text)
    for _ in range(_TRIES):
        try:
            reply = model.answer(SUMMARY_SYSTEM, summary_question(goal, text[:length]))
            return printable(storable(reply)).strip()[:LONGEST_SUMMARY]
        except TextTooLong:
            length //= 2
    return ""
