"""The model calls of an episode whose agent has its own client: recorded as they were served, counted, and shown as messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rollout_tasks.models.base import THINKING_FIELDS, Model, Reply, Usage
from rollout_tasks.models.served_call import ServedCall
from rollout_tasks.trajectories.calls import CallWriter
from rollout_tasks.trajectories.writer import TrajectoryWriter


class RecordedCalls:
    """The `Recorder` of one session; closed after it."""

    def __init__(self, trajectory: TrajectoryWriter, model: Model, header: Mapping[str, Any]) -> None:
        """Writes nothing yet.

        Args:
            trajectory: The attempt's record, which gets the messages.
            model: Counts the calls.
            header: What the record of calls begins with.
        """
        self._trajectory = trajectory
        self._model = model
        self._header = header
        self._writer: CallWriter | None = None
        self._calls: deque[ServedCall] = deque()
        """Those that are not yet in the trajectory."""
        self._turn = 0
        self.usage = Usage()
        """Of all calls that were written."""
        self.served_in_turn = 0
        """Calls of this turn that were served and written."""
        self.last: ServedCall | None = None
        """The last call that was served."""

    def record(self, call: ServedCall) -> None:
        """See `Recorder`; called in the gateway's thread."""
        if self._writer is not None:
            self._writer.record(call)
        self._calls.append(call)

    def begin_turn(self, turn: int) -> None:
        """Says to which of the agent's turns the next calls belong."""
        self._turn = turn
        self.served_in_turn = 0

    def write(self) -> None:
        """Writes the new calls' messages to the trajectory, and counts them."""
        while self._calls:
            call = self._calls.popleft()
            self.usage += call.usage
            self._model.count(call.usage, turn=self._turn, answered=call.reply is not None)
            if call.reply is not None:
                self.last = call
                self.served_in_turn += 1
                reply = _reply_of(call, call.reply)
                self._trajectory.message(
                    reply.message, turn=self._turn, reply=reply, prompt=call.messages, tools=call.tools
                )

    def __enter__(self) -> Self:
        if self._trajectory.folder is not None:
            self._writer = CallWriter(self._trajectory.folder, self._header)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            self.write()  # those that the session's end has cut off
        finally:
            if self._writer is not None:
                self._writer.finish()


def _reply_of(call: ServedCall, said: Mapping[str, Any]) -> Reply:
    content = said.get("content")
    sampled = call.sampled
    tokens: dict[str, Any] = {
        "prompt_token_ids": sampled.prompt_ids,
        "token_ids": sampled.output_ids,
        "tokens": sampled.output_texts,
        "logprobs": sampled.logprobs,
    }
    return Reply(
        message={name: value for name, value in said.items() if name not in THINKING_FIELDS},
        text=content if isinstance(content, str) else "",
        tool_calls=(),
        finish_reason=call.finish_reason,
        usage=call.usage,
        served_by=call.model,
        served=call.served,
        token_data={name: list(values) for name, values in tokens.items() if values},
        thinking={name: said[name] for name in THINKING_FIELDS if name in said},
    )
