"""The options of the runs that a trainer's rollouts are, and the items of its dataset."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmark.items import Item, parse_item
from rollout_tasks.config import DataConfig, RunConfig, parse_config
from rollout_tasks.errors import UserError
from rollout_tasks.integrations.verl.trainer_model import MODEL_NAME
from rollout_tasks.per_process import per_process
from rollout_tasks.runs.agent_profile import with_profile
from rollout_tasks.runs.submission import load_benchmark

WHERE = "agent_loop_config_path"
_ROLLOUT = "actor_rollout_ref.rollout"
_SAMPLED_WITH = f"{_ROLLOUT} says how verl samples"
_OF_VERL: Mapping[tuple[str, ...], str] = {
    ("rollouts_per_item",): f"{_ROLLOUT}.n says it",
    ("run_id",): "each rollout is a run with a name of its own",
    ("model", "name"): "the model is verl's",
    ("model", "base_url"): "the model is verl's",
    ("model", "pool"): "the model is verl's",
    ("model", "temperature"): _SAMPLED_WITH,
    ("model", "top_p"): _SAMPLED_WITH,
    ("model", "seed"): _SAMPLED_WITH,
    ("model", "extra_body"): _SAMPLED_WITH,
}
"""Options of a run that are the trainer's, with the reason."""
_CALL_SECONDS = 600.0
"""How long a call may take unless the options say it: a trainer's engine pauses while it gets new weights."""


def run_options(values: Mapping[str, Any]) -> RunConfig:
    """Returns the options of each run, but for what the single one has of its own: a name, and where its model is.

    Args:
        values: As in a run.yaml.

    Raises:
        UserError: An option is wrong, or is the trainer's.
    """
    return _run_options(json.dumps(values, sort_keys=True, default=str))


@per_process
def _run_options(encoded: str) -> RunConfig:
    values = json.loads(encoded)
    for path, why in _OF_VERL.items():
        part = values
        for name in path[:-1]:
            part = part.get(name) if isinstance(part, dict) else None
        if isinstance(part, dict) and path[-1] in part:
            raise UserError(f"{WHERE}: run.{'.'.join(path)}: leave it out: {why}")
    model = values.get("model", {})
    if isinstance(model, dict):
        asked = {"return_token_ids": True, "logprobs": True}
        values["model"] = {"timeout": _CALL_SECONDS, **model, "name": MODEL_NAME, "extra_body": asked}
    return with_profile(parse_config(values, where=f"{WHERE}: run"))


def item_of_row(row: Mapping[str, Any], config: RunConfig) -> Item:
    """Returns the item that a row of the trainer's dataset names.

    Args:
        row: Its columns: ``item`` has an item as a line of JSONL, or ``item_id`` the id of one in ``run.data.path``.
        config: The options of the runs.

    Raises:
        BenchmarkError: The item or the data is wrong.
        UserError: The row names none, or one that is not there.
    """
    item, item_id = (_text(row.get(name)) for name in ("item", "item_id"))
    if item:
        return parse_item(item, "the dataset's column item")
    if not item_id:
        raise UserError(
            "the dataset has no column item (an item as JSON) and none with item_id (an item's id in run.data.path)"
        )
    if config.data.path is None:
        raise UserError(f"the dataset has a column item_id, and {WHERE} no run.data.path, where the items are")
    found = _items(config.data.model_dump_json()).get(item_id)
    if found is None:
        raise UserError(f"the dataset's item_id {item_id[:100]!r} is not in {config.data.path}")
    return found


@per_process
def _items(data: str) -> dict[str, Item]:
    """Returns the items of a benchmark by their ids."""
    config = RunConfig(data=DataConfig.model_validate_json(data))
    return {item.id: item for item in load_benchmark(config).items}


def _text(value: Any) -> str:
    """Returns a column's value as text; a trainer's batches have NumPy's kinds of values."""
    value = value.item() if hasattr(value, "item") else value
    return json.dumps(value) if isinstance(value, dict) else "" if value is None else str(value)
