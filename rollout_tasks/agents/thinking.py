"""What a model thought, where its endpoint leaves that in the text of a reply."""

from __future__ import annotations

_BEGIN, _END = "<think>", "</think>"


def after_thinking(text: str) -> str | None:
    """Returns a reply without what the model thought before it: all until ``</think>``, with or without an opening tag.

    Returns:
        None where the thinking begins with its tag and does not end: all of it is thinking.
    """
    _, ended, reply = text.partition(_END)
    if ended:
        return reply
    return None if text.lstrip().startswith(_BEGIN) else text
