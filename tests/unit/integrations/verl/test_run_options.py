"""The options of a trainer's rollouts, and the items that its dataset names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.errors import BenchmarkError
from rollout_tasks.errors import UserError
from rollout_tasks.integrations.verl.run_options import item_of_row, run_options

MATH = {"env_mode": "math", "metric": "final_number"}


def test_runs_ask_for_tokens_and_leave_time_for_new_weights() -> None:
    config = run_options({**MATH, "model": {"max_completion_tokens": 99}})

    assert config.model.extra_body == {"return_token_ids": True, "logprobs": True}
    assert (config.model.name, config.model.timeout, config.model.max_completion_tokens) == ("policy", 600, 99)
    assert run_options({**MATH, "model": {"timeout": 5}}).model.timeout == 5


def test_an_agents_profile_is_filled_in() -> None:
    config = run_options({"env_mode": "osworld", "agent": "uitars-1.5"})

    assert config.profile is not None
    assert config.profile["name"] == "uitars-1.5"
    assert config.model.extra_body["return_token_ids"] is True


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rollouts_per_item": 4}, "run.rollouts_per_item: leave it out: actor_rollout_ref.rollout.n says it"),
        ({"model": {"temperature": 0.5}}, "run.model.temperature: leave it out: actor_rollout_ref.rollout says how"),
        ({"model": {"base_url": "http://a/v1"}}, "run.model.base_url: leave it out: the model is verl's"),
        ({"model": 5}, "agent_loop_config_path: run: model: must be a mapping of options, got 5"),
        ({"max_turn": 5}, "agent_loop_config_path: run: max_turn: is not an option"),
    ],
)
def test_what_is_wrong_is_one_sentence(values: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as refused:
        run_options({**MATH, **values})

    assert said in str(refused.value)


def test_a_row_has_an_item_or_the_id_of_one(tmp_path: Path) -> None:
    data = tmp_path / "items.jsonl"
    data.write_text('{"id": "a", "question": "One?"}\n{"id": "7", "question": "Seven?"}\n')
    config = run_options({**MATH, "data": {"path": str(data)}})
    whole = {"id": "b", "question": "Two?", "answer": 2}

    assert item_of_row({"item_id": "a", "item": None}, config).question == "One?"
    assert item_of_row({"item_id": 7}, config).question == "Seven?"
    assert [item_of_row({"item": item}, config).answer for item in (json.dumps(whole), whole)] == ["2", "2"]


@pytest.mark.parametrize(
    ("row", "error", "said"),
    [
        ({"item_id": "a"}, UserError, "the dataset has a column item_id, and agent_loop_config_path no run.data.path"),
        ({"raw_prompt": []}, UserError, "the dataset has no column item"),
        ({"item": "{"}, BenchmarkError, "the dataset's column item: "),
        ({"item": '{"id": "a"}'}, BenchmarkError, "the dataset's column item: question is missing"),
    ],
)
def test_a_row_without_one_is_refused(row: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        item_of_row(row, run_options(MATH))


def test_an_id_that_is_not_in_the_data_is_named(tmp_path: Path) -> None:
    data = tmp_path / "items.jsonl"
    data.write_text('{"id": "a", "question": "One?"}\n')

    with pytest.raises(UserError, match=f"the dataset's item_id 'b' is not in {data}"):
        item_of_row({"item_id": "b"}, run_options({**MATH, "data": {"path": str(data)}}))
