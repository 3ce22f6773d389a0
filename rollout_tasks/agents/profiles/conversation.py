"""Makes each prompt of an episode from the steps so far, by a profile's rules.

Unlike a conversation that only grows, a prompt is made anew each time: pictures of older steps go, their replies stay, or become
lines of text, as the model was trained to see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollout_tasks.agents.profiles.box_tokens import with_box_tokens
from rollout_tasks.agents.profiles.packaged_text import filled, read_text
from rollout_tasks.agents.profiles.pictures import SentPicture
from rollout_tasks.agents.profiles.profile import Profile, Text
from rollout_tasks.models.base import Message
from rollout_tasks.models.sent_messages import PLACEHOLDER

EXPLANATION = "{problem} Nothing was done. Reply again, in the format that was asked for."


@dataclass(frozen=True, slots=True)
class Said:
    """A reply's parts, as earlier steps may be shown."""

    reply: str
    """The text as the model wrote it, thinking included."""
    action: str = ""
    thought: str = ""
    observation: str = ""
    fields: Mapping[str, str] | None = None
    """The thinking in fields of its own, if it is sent back."""


@dataclass(frozen=True, slots=True)
class _Step:
    number: int
    """From 1."""
    picture: SentPicture
    said: Said


class Conversation:
    """One episode's steps."""

    def __init__(self, profile: Profile, values: Mapping[str, str], *, images: int | None, keep_thinking: bool) -> None:
        """Reads the profile's texts.

        Args:
            profile: Its rules.
            values: What replaces ``{instruction}`` and ``{client_password}``.
            images: Pictures in a prompt at most; None: all of them.
            keep_thinking: Whether replies keep their thinking.

        Raises:
            TextUnreadable: A text's package is not installed, or lacks the text.
        """
        prompts = profile.prompts
        self._profile = profile
        self._values = values
        self._images = images
        self._keep_thinking = keep_thinking
        self._system = None if prompts.system is None else read_text(prompts.system)
        self._task = read_text(prompts.task)
        self._step = _read(prompts.step)
        self._older_step = _read(prompts.older_step) if prompts.older_step is not None else self._step
        self._steps: list[_Step] = []
        self._corrections: list[Message] = []

    def add(self, picture: SentPicture, said: Said) -> None:
        """Adds a step that was carried out; corrections before it are forgotten."""
        self._steps.append(_Step(len(self._steps) + 1, picture, said))
        self._corrections.clear()

    def correct(self, reply: str, problem: str) -> None:
        """Tells the model, until its next usable reply, why a reply was not."""
        if reply.strip():
            self._corrections.append(self._assistant(self._shown(reply)))
        self._corrections.append(_user([_text(EXPLANATION.format(problem=problem))]))

    def prompt(self, picture: SentPicture) -> list[Message]:
        """Returns the messages to send.

        Args:
            picture: What is seen now.
        """
        shown, older = self._split()
        values = {
            **self._values,
            "picture_width": str(picture.size[0]),
            "picture_height": str(picture.size[1]),
            "previous_actions": self._previous_actions(older),
        }
        task = _text(filled(self._task, values))
        task_with = self._profile.prompts.task_with
        messages: list[Message] = []
        if self._system is not None:
            messages.append({"role": "system", "content": self._content(filled(self._system, values))})
        if task_with == "itself":
            messages.append(_user([task]))
        messages += self._older(older)
        for step in shown:
            first = task_with == "first_picture" and step is shown[0]
            messages.append(_user([step.picture.part, task] if first else [step.picture.part]))
            messages.append(self._again(step))
        last = task_with == "current_picture" or (task_with == "first_picture" and not shown)
        messages.append(_user([picture.part, task] if last else [picture.part]))
        return messages + self._corrections

    def _split(self) -> tuple[Sequence[_Step], Sequence[_Step]]:
        """Returns the steps with their pictures, and the older ones that are not dropped."""
        most = len(self._steps) if self._images is None else min(self._images - 1, len(self._steps))
        gone = len(self._steps) - most
        history = self._profile.history
        kept = gone if history.steps is None else min(gone, history.steps)
        return self._steps[gone:], self._steps[gone - kept : gone] if history.older != "dropped" else ()

    def _previous_actions(self, older: Iterable[_Step]) -> str:
        if self._profile.history.older != "action":
            return self._profile.prompts.no_older_steps
        return "\n".join(map(self._line, older)) or self._profile.prompts.no_older_steps

    def _older(self, older: Sequence[_Step]) -> Iterable[Message]:
        kind = self._profile.history.older
        if kind == "action":
            if older and "{previous_actions}" not in self._task:
                yield self._assistant("\n".join(map(self._line, older)))
            return
        for step in older:
            if kind == "placeholder":
                yield _user([_text(PLACEHOLDER)])
            yield self._again(step)

    def _line(self, step: _Step) -> str:
        return self._reply(step) if self._older_step is None else self._made(self._older_step, step)

    def _again(self, step: _Step) -> Message:
        """Returns an earlier reply as it is sent back."""
        text = self._reply(step) if self._step is None else self._made(self._step, step)
        message = self._assistant(text)
        return {**message, **step.said.fields} if step.said.fields else message

    def _reply(self, step: _Step) -> str:
        return self._shown(step.said.reply)

    def _shown(self, text: str) -> str:
        """Returns a reply as the profile has it sent back."""
        if not self._keep_thinking:
            _, ended, rest = text.partition("</think>")
            text = rest.lstrip() if ended else text
        return with_box_tokens(text) if self._profile.history.box_tokens else text

    def _made(self, template: str, step: _Step) -> str:
        said = step.said
        values = {"action": said.action, "thought": said.thought, "observation": said.observation}
        return filled(template, {"number": str(step.number), "reply": self._reply(step), **values})

    def _assistant(self, text: str) -> Message:
        return {"role": "assistant", "content": self._content(text)}

    def _content(self, text: str) -> str | list[dict[str, Any]]:
        return [_text(text)] if self._profile.prompts.text_in_parts else text


def _read(text: Text | None) -> str | None:
    return None if text is None else read_text(text)


def _user(parts: list[dict[str, Any]]) -> Message:
    return {"role": "user", "content": parts}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
