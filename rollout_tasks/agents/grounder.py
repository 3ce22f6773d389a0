"""A grounder: a model that finds the place of what is described in words on a screenshot.

It is asked as an agent with its profile would be, for a single click, and only the place of its first action counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rollout_tasks.agents.limits import Budget
from rollout_tasks.agents.profiles.actions import Action, Click, Drag, MouseDown, MouseUp, Move, Point, Scroll
from rollout_tasks.agents.profiles.dialogues import dialogue_of
from rollout_tasks.agents.profiles.pictures import decodable, encoded
from rollout_tasks.agents.profiles.profile import Profile
from rollout_tasks.agents.profiles.reply import UnusableReplyError
from rollout_tasks.config import RunConfig
from rollout_tasks.models.base import ContextOverflow, Message, Model, Reply
from rollout_tasks.trajectories.writer import TrajectoryWriter

ROLE = "grounder"
_TRIES = 2
"""Replies to one description, of which the last must name a place."""
_IMAGES = 2
"""More than a dialogue of one question has; OpenAI's computer tool wants room for two."""


class NotFoundError(Exception):
    """The grounder names no place; the message says why, for the planner."""


class Grounder:
    """One episode's grounder."""

    def __init__(self, config: RunConfig, model: Model, budget: Budget, record: TrajectoryWriter) -> None:
        """Stores what it needs.

        Args:
            config: The run's options, with the grounder's profile.
            model: The model in this role.
            budget: The episode's, of which its calls take their part.
            record: Where its questions and replies go; already started.

        Raises:
            ValueError: The configuration has no grounder, or one without a profile.
        """
        role = config.model_role(ROLE)
        if role is None or not isinstance(role.profile, dict):
            raise ValueError(
                f"the run has no {ROLE} with a profile: --model-role {ROLE}=MODEL,base-url=URL,profile=NAME"
            )
        self._profile = Profile.model_validate(role.profile)
        self._config = config.model_copy(update={"model": config.role_model(role)})
        self._model = model
        self._budget = budget
        self._record = record

    def place(self, description: str, screenshot: bytes) -> Point:
        """Returns the place of what is described: pixels of the screen from the left and from the top.

        Args:
            description: What to look for, in words.
            screenshot: A PNG.

        Raises:
            NotFoundError: The description says nothing, or the model names no place.
            RolloutFailure: As `Model.complete` raises it, ``max_turns`` if there are no tokens left, or ``vm_lost`` if the
                screenshot cannot be decoded.
        """
        if not any(sign.isalnum() for sign in description):
            raise NotFoundError("The description has no words.")
        instruction = f"Click on {description.strip().rstrip('.')}."
        dialogue = dialogue_of(self._profile, self._config, instruction, images=_IMAGES)
        with decodable():
            picture = encoded(screenshot, self._profile.pictures)
        self._record.message({"role": "user", "content": instruction}, turn=self._budget.turn)
        problem = ""
        for _ in range(_TRIES):
            try:
                reply = self._ask(dialogue.prompt(picture), dialogue.tools(picture))
            except ContextOverflow:
                if not problem:
                    raise
                break  # the reply before has used the context up
            try:
                if reply.cut_off or reply.filtered or reply.refused:
                    raise UnusableReplyError(f"Its reply was not complete ({reply.finish_reason}).")
                return _first_place(dialogue.read(reply, picture).actions)
            except UnusableReplyError as error:
                problem = str(error)
            if self._profile.after_unusable == "explain":
                dialogue.correct(reply, problem)
        raise NotFoundError(problem)

    def _ask(self, prompt: Sequence[Message], tools: Sequence[Any]) -> Reply:
        self._budget.check_tokens()
        reply = self._model.complete(prompt, tools)
        self._budget.usage += reply.usage
        self._record.message(reply.message, turn=self._budget.turn, reply=reply, prompt=prompt)
        return reply


def _first_place(actions: Sequence[Action]) -> Point:
    """Returns the place of the first action that has one.

    Raises:
        UnusableReplyError: None has.
    """
    for action in actions:
        match action:
            case Click(at=place) | MouseDown(at=place) | MouseUp(at=place) | Scroll(at=place) | Move(to=place):
                pass
            case Drag(path=path, start=start):
                place = start or path[0]
            case _:
                place = None
        if place is not None:
            return place
    raise UnusableReplyError("It named no place: it was asked to click.")
