"""Makes the dialogue that a profile's protocol has."""

from __future__ import annotations

from datetime import UTC, datetime

from rollout_tasks.agents.profiles.dialogue import Dialogue
from rollout_tasks.agents.profiles.messages_dialogue import MessagesDialogue
from rollout_tasks.agents.profiles.profile import Profile
from rollout_tasks.agents.profiles.responses_dialogue import ResponsesDialogue
from rollout_tasks.agents.profiles.text_dialogue import TextDialogue
from rollout_tasks.config import RunConfig


def dialogue_of(profile: Profile, config: RunConfig, instruction: str, *, images: int | None) -> Dialogue:
    """Returns a dialogue that has not begun yet.

    Args:
        profile: Its rules.
        config: The run's options.
        instruction: What the model is asked to do.
        images: Pictures in a prompt at most; None: all of them.

    Raises:
        TextUnreadable: A text's package is not installed, or lacks the text.
    """
    values = {
        "instruction": instruction,
        "client_password": config.desktop.client_password,
        "date": f"{datetime.now(UTC):%A, %B %d, %Y}",
    }
    if profile.api == "responses":
        return ResponsesDialogue(profile, values, images=images, system=config.desktop.os_type)
    if profile.api == "messages":
        return MessagesDialogue(profile, values, images=images)
    return TextDialogue(profile, values, images=images, keep_thinking=config.model.keep_thinking)
