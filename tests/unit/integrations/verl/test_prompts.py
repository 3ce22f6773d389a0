"""Prompts as token ids: what was sampled is in the next prompt as it was sampled, or the prompt is rendered anew."""

from __future__ import annotations

from typing import Any

import pytest

from rollout_tasks.integrations.verl.prompts import Prompts
from tests.unit.integrations.verl.letters import LetterBuilder, ids

ASKED: list[dict[str, Any]] = [{"role": "system", "content": "be"}, {"role": "user", "content": "go"}]
REPLY = {"role": "assistant", "content": "hi"}
MORE = {"role": "user", "content": "on"}
SAMPLED = "s:be|u:go|a:HI|"
"""The model wrote capitals, which the reply's text does not have."""


def prompts_after_a_reply(builder: LetterBuilder | None = None) -> Prompts:
    prompts = Prompts(builder or LetterBuilder())
    prompts.keep(ASKED, REPLY, None, ids(SAMPLED))
    return prompts


def text(prompts: Prompts, messages: list[dict[str, Any]], tools: list[Any] | None = None) -> str:
    return "".join(map(chr, prompts.ids(messages, messages, tools, None)))


def test_a_prompt_goes_on_from_what_was_sampled() -> None:
    assert text(prompts_after_a_reply(), [*ASKED, REPLY, MORE]) == f"{SAMPLED}u:on|a:"


def test_it_goes_on_from_the_longest_one() -> None:
    prompts = prompts_after_a_reply()
    longer = [*ASKED, REPLY, MORE]
    prompts.keep(longer, REPLY, None, ids(f"{SAMPLED}u:on|a:Hi|"))

    assert text(prompts, [*longer, REPLY, MORE]) == f"{SAMPLED}u:on|a:Hi|u:on|a:"


def test_a_reply_without_text_is_the_same_however_it_is_written() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    prompts = Prompts(LetterBuilder())
    prompts.keep(ASKED, {"role": "assistant", "content": "", "tool_calls": [call]}, None, ids(SAMPLED))
    sent = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]}
    rendered = [*ASKED, {**REPLY}, MORE]

    assert prompts.ids([*ASKED, sent, MORE], rendered, None, None) == ids(f"{SAMPLED}u:on|a:")


@pytest.mark.parametrize(
    "messages",
    [
        [*ASKED, {"role": "assistant", "content": "other"}, MORE],
        [{"role": "system", "content": "another"}, ASKED[1], REPLY, MORE],
        [*ASKED, REPLY],
    ],
    ids=["another reply", "another beginning", "nothing after the reply"],
)
def test_any_other_prompt_is_rendered_anew(messages: list[dict[str, Any]]) -> None:
    anew = text(Prompts(LetterBuilder()), messages)

    assert text(prompts_after_a_reply(), messages) == anew
    assert "HI" not in anew


def test_so_is_one_with_other_tools() -> None:
    messages = [*ASKED, REPLY, MORE]

    assert text(prompts_after_a_reply(), messages, [{"type": "function"}]) == "s:be|u:go|a:hi|u:on|a:"


def test_so_is_one_whose_template_changes_what_is_before() -> None:
    messages = [*ASKED, REPLY, MORE]

    assert text(prompts_after_a_reply(LetterBuilder(appends=False)), messages) == "s:be|u:go|a:hi|u:on|a:"
