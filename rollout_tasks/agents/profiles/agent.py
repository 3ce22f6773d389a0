"""The agent for models that operate a computer in a protocol of their own: one loop for all, with the rules of a profile.

Each turn sends the prompt that a `Dialogue` makes from the steps so far, reads the reply and carries out its actions in order,
each a step of the record. The record has every prompt as it was sent.

A call for the user is answered as OSWorld's own UI-TARS agent does: nobody is there, so the model is kept waiting as often as the
profile says, and then its call counts as ``fail``, which is what it means to a benchmark: it could not go on alone. An answer is
kept, and is the episode's text once the model says that it is done.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar, Literal

from benchmark.items import Item
from rollout_tasks.agents.base import Agent, Episode
from rollout_tasks.agents.limits import UnusableTurns, ask, check_refusal, check_tokens, turns_used, unanswered
from rollout_tasks.agents.profiles.actions import Action, Answer, CallUser, Done, Fail, Operation, Wait
from rollout_tasks.agents.profiles.dialogue import ActionOutcome
from rollout_tasks.agents.profiles.dialogues import dialogue_of
from rollout_tasks.agents.profiles.key_names import check_keys
from rollout_tasks.agents.profiles.pictures import SentPicture, decodable, encoded
from rollout_tasks.agents.profiles.profile import Profile
from rollout_tasks.agents.profiles.pyautogui_code import tool_call
from rollout_tasks.agents.profiles.reply import UnusableReplyError
from rollout_tasks.config import Limits, RunConfig
from rollout_tasks.environments.base import Observation, ToolResult, World
from rollout_tasks.environments.osworld.action_spaces.base import CONTROL
from rollout_tasks.environments.osworld.action_spaces.pyautogui import SCRIPT
from rollout_tasks.models.base import Message, Model, Reply, Usage
from rollout_tasks.trajectories.writer import TrajectoryWriter

_TOOLS = (SCRIPT.name, CONTROL.name)


class ProfileAgent(Agent):
    """An agent with the profile that the run's configuration holds."""

    needs_model: ClassVar[bool] = True
    profile: ClassVar[Profile | None] = None
    """What the submission writes into the configuration of a run with this agent."""

    def __init__(self, config: RunConfig) -> None:
        """Stores the run's options."""
        self._config = config

    def run(
        self,
        item: Item,
        environment: World,
        observation: Observation,
        model: Model,
        limits: Limits,
        trajectory: TrajectoryWriter,
    ) -> Episode:
        """See `Agent`.

        Raises:
            UserError: A text of the profile cannot be read.
            ValueError: There is no profile, or the environment does not have what the agent acts through or sees.
        """
        tools = {tool.name for tool in environment.tools()}
        if missing := [name for name in _TOOLS if name not in tools]:
            raise ValueError(
                f"the agent acts through the tool {missing[0]}, which this environment does not offer:"
                " take a desktop, with --action-space pyautogui"
            )
        profile = self._profile()
        episode = _ProfileEpisode(profile, self._config, item, environment, model, trajectory)
        return episode.play(observation, limits)

    def _profile(self) -> Profile:
        """Returns the profile that the submission wrote into the run's configuration, which was checked when it was read."""
        if self._config.profile is None:
            raise ValueError("the run has no profile: name a profile's file, as in --agent my-profile.yaml")
        return Profile.model_validate(self._config.profile)


def profile_agent(profile: Profile) -> type[ProfileAgent]:
    """Returns an agent with a profile, for the entry point of a package that brings its own."""
    return type(f"ProfileAgent({profile.name})", (ProfileAgent,), {"profile": profile, "__module__": __name__})


class _ProfileEpisode:
    """One episode."""

    def __init__(
        self,
        profile: Profile,
        config: RunConfig,
        item: Item,
        environment: World,
        model: Model,
        trajectory: TrajectoryWriter,
    ) -> None:
        self._profile = profile
        self._model_config = config.model
        self._system = config.desktop.os_type
        self._environment = environment
        self._model = model
        self._trajectory = trajectory
        self._dialogue = dialogue_of(profile, config, item.question, images=config.model.max_images)
        self._turn = 0
        self._reply: Reply | None = None
        self._usage = Usage()
        self._unusable = UnusableTurns()
        self._answer = ""
        self._user_calls = 0
        self._prompt: list[Message] = []
        self._asks_again = False
        """Whether the last reply was unusable, so that the prompt is the one before with what was wrong, or without."""

    def play(self, observation: Observation, limits: Limits) -> Episode:
        """Plays turns until the model ends the episode, or a limit is reached."""
        picture = self._picture(observation)
        while self._turn < limits.max_turns:
            check_tokens(limits, self._usage, self._turn)
            self._turn += 1
            reply = self._ask(picture)
            try:
                if reply.cut_off:
                    raise UnusableReplyError("The reply was cut off at its token limit: be brief.")
                if reply.filtered:
                    raise UnusableReplyError("The reply was stopped by a content filter: use other words.")
                parsed = self._dialogue.read(reply, picture)
                check_keys(parsed.actions, self._system)
            except UnusableReplyError as problem:
                self._refuse(reply, problem)
                continue
            self._unusable.reset()
            ending, outcomes = self._carry_out(parsed.actions)
            if ending is not None:
                return Episode(self._answer, ending, self._turn, self._usage)
            with decodable():
                self._dialogue.add(picture, reply, parsed, outcomes)
            seen = [one.result.observation for one in outcomes if one.result and one.result.observation is not None]
            if seen:
                picture = self._picture(seen[-1])
        raise turns_used(limits)

    def _ask(self, picture: SentPicture) -> Reply:
        prompt = self._dialogue.prompt(picture)
        for message in self._new(prompt):
            self._trajectory.message(message, turn=self._turn)
        self._prompt, self._asks_again = prompt, False
        tools = self._dialogue.tools(picture)
        reply = ask(self._model, prompt, tools, self._reply, self._model_config)
        self._reply = reply
        self._usage += reply.usage
        self._trajectory.message(reply.message, turn=self._turn, reply=reply, prompt=prompt, tools=tools)
        check_refusal(reply)
        return reply

    def _new(self, prompt: Sequence[Message]) -> list[Message]:
        """Returns the messages of a prompt that the conversation does not have yet: those after the model's last one.

        Messages that stood there before are not new, but for the last: a screen that did not change is seen again, except after an
        unusable reply, when nothing was done.
        """
        if not self._prompt:
            return list(prompt)
        new: list[Message] = []
        for place in reversed(range(len(prompt))):
            if not _is_users(prompt[place]):
                break
            before = place < len(self._prompt) and prompt[place] == self._prompt[place]
            if not before or (place == len(prompt) - 1 and not self._asks_again):
                new.insert(0, prompt[place])
        return new

    def _refuse(self, reply: Reply, problem: UnusableReplyError) -> None:
        self._asks_again = True
        self._unusable.add(unanswered(reply, self._model_config) or str(problem))
        if self._profile.after_unusable == "explain":
            self._dialogue.correct(reply, str(problem))

    def _carry_out(self, actions: Sequence[Action]) -> tuple[Literal["done", "fail"] | None, list[ActionOutcome]]:
        """Carries out a reply's actions in order; returns how the episode ended, if it did, and what became of each."""
        outcomes: list[ActionOutcome] = []
        for number, action in enumerate(actions, start=1):
            operation = self._operation(action)
            result = None if operation is None else self._execute(operation, number)
            outcomes.append(ActionOutcome(action, result))
            if isinstance(operation, Done | Fail):
                return "done" if isinstance(operation, Done) else "fail", outcomes
            if result is not None and result.ends_episode is not None:
                return result.ends_episode, outcomes
        return None, outcomes

    def _operation(self, action: Action) -> Operation | None:
        """Returns what the environment is to do for an action; None for words to the user."""
        match action:
            case Answer(text):
                self._answer = text
                return None
            case CallUser(text):
                self._user_calls += 1
                if self._user_calls <= self._profile.user_calls:
                    return Wait()
                action = Fail(text)
        if isinstance(action, Done | Fail):
            self._answer = action.text or self._answer
        return action

    def _execute(self, operation: Operation, number: int) -> ToolResult:
        call = tool_call(operation, f"turn-{self._turn}-{number}")
        started = time.monotonic()
        result = self._environment.execute(call)
        self._trajectory.step(turn=self._turn, call=call, result=result, seconds=time.monotonic() - started)
        return result

    def _picture(self, observation: Observation) -> SentPicture:
        if not observation.images:
            raise ValueError(
                "the agent needs a screenshot, and the environment shows none: --observation-type screenshot"
            )
        with decodable():
            return encoded(observation.images[-1], self._profile.pictures)


def _is_users(message: Message) -> bool:
    return message.get("role") in ("user", "tool") or message.get("type") == "computer_call_output"
