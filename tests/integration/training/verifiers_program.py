"""Has verifiers make traces of calls, and branches of these; run by the Python that has it.

The argument is a file of JSON with the calls of each rollout. Says as JSON which training samples prime-rl makes of them: one for
each branch, in which a reply is learned that no earlier branch has.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from pydantic import TypeAdapter
from renderers.base import RenderedTokens
from verifiers.v1 import graph
from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import AgentInfo, TraceTask, WireTrace
from verifiers.v1.types import AssistantMessage, Messages, Response, TurnTokens

MESSAGES: TypeAdapter[Any] = TypeAdapter(Messages)


def trace_of(calls: list[dict[str, Any]], *, with_spans: bool) -> Any:
    trace = WireTrace(
        task=TraceTask(type="task", data=WireTaskData(idx=0)), agent=AgentInfo(config=WireAgentConfig()), ok=True
    )
    for call in calls:
        rendered = RenderedTokens(
            token_ids=call["prompt_ids"],
            message_indices=call["owners"],
            message_roles=[message["role"] for message in call["messages"]],
        )
        tokens = TurnTokens(
            prompt_ids=call["prompt_ids"],
            completion_ids=call["output_ids"],
            completion_logprobs=call["logprobs"],
            message_spans=rendered.message_token_spans() if with_spans else None,
        )
        message = AssistantMessage.model_validate(call["reply"])
        turn = graph.prepare_turn(trace, MESSAGES.validate_python(call["messages"]))
        turn.commit(Response(id="r", created=0, model="policy", message=message, finish_reason="stop", tokens=tokens))
    return WireTrace.model_validate(trace.model_dump(mode="python"))


def samples_of(trace: Any) -> list[dict[str, Any]]:
    learned: set[int] = set()
    samples = []
    for branch in trace.branches:
        mask: list[bool] = []
        for node in branch.nodes:
            mask += [False] * len(node.mask) if id(node) in learned else node.mask
            learned.add(id(node))
        kept = [logprob if is_learned else 0.0 for logprob, is_learned in zip(branch.logprobs, mask, strict=True)]
        if any(mask):
            samples.append({"token_ids": branch.token_ids, "mask": mask, "logprobs": kept})
    return samples


if __name__ == "__main__":
    assert vf.WireTrace is WireTrace
    rollouts = json.loads(Path(sys.argv[1]).read_text())
    json.dump(
        [
            {
                with_spans: samples_of(trace_of(one["calls"], with_spans=with_spans == "spans"))
                for with_spans in ("spans", "")
            }
            for one in rollouts
        ],
        sys.stdout,
    )
