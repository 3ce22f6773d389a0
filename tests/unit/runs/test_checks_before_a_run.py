"""Checks of prices, of what an endpoint serves, of items and of a resumed run's description, before anything is enqueued."""

# ruff: noqa: F811 (fixtures are imported)

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.simulated import SimulatedEnvironment
from rollout_tasks.errors import UserError
from rollout_tasks.runs import asked_endpoint, model_check, preflight
from rollout_tasks.runs.description import RunDescription
from tests.unit.runs.test_model_check import MODELS, ModelEndpoint, _known, asking, config, endpoint  # noqa: F401
from tests.unit.runs.test_preflight import item, osworld_item

PRICES = {"prompt_price": 1.0, "completion_price": 0.0}


def told(check: Callable[[], object]) -> str:
    """The refusal's sentence; empty when there is none."""
    try:
        check()
    except UserError as refusal:
        return str(refusal)
    return ""


@pytest.mark.parametrize(
    ("model", "limit", "needs_model", "spent", "says"),
    [
        ({}, None, True, 0.0, ""),
        ({}, None, False, 9.0, ""),
        (PRICES, None, True, 9.0, ""),
        ({"prompt_price": 1.0}, None, True, 0.0, "--prompt-price, --completion-price: only one of them is given"),
        ({"completion_price": 1.0}, None, False, 0.0, "--prompt-price, --completion-price: only one of them is given"),
        (PRICES, 2.0, True, 1.99, ""),
        (PRICES, 2.0, False, 0.0, "--max-cost: this run asks no model"),
        (
            {"name": "m-1"},
            2.0,
            True,
            0.0,
            "--max-cost: what 'm-1' costs is not known: give --prompt-price and --completion-price",
        ),
        (PRICES, 2.0, True, 2.0, "--max-cost: the run has cost $2.00 already, of $2.00: raise it"),
        (PRICES, 2.0, True, 2.5, "--max-cost: the run has cost $2.50 already, of $2.00: raise it"),
    ],
)
def test_a_limit_is_one_that_can_be_kept(
    model: dict[str, Any], limit: float | None, needs_model: bool, spent: float, says: str
) -> None:
    asked = config(model=model, max_cost=limit)

    assert told(lambda: model_check.check_cost(asked, needs_model=needs_model, spent=spent)) == says


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([(200, MODELS)], "serves m-1, m-2"),
        ([(200, {"data": []})], "answers; it serves no model"),
        ([(404, "")], "answers; it does not say which models it serves"),
    ],
)
def test_what_an_endpoint_serves_is_said(
    endpoint: ModelEndpoint, known: Callable[..., None], answers: list[tuple[int, Any]], says: str
) -> None:
    endpoint.answers = list(answers)

    assert asked_endpoint.served_models(endpoint.url) == says


def test_a_run_that_was_scripted_is_so_only_where_the_scripted_model_answers(
    endpoint: ModelEndpoint, known: Callable[..., None]
) -> None:
    endpoint.answers = [(200, MODELS)]
    before = asking(endpoint)
    before = before.model_copy(update={"model": before.model.model_copy(update={"scripted": True})})

    assert not model_check.check_model(before).model.scripted


def test_certificates_that_are_not_there_are_named(known: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/certificates.pem")

    says = told(lambda: asked_endpoint.served_models("https://127.0.0.1:1/v1"))

    assert says == (
        "the model endpoint https://127.0.0.1:1/v1 cannot be asked: a file of certificates: No such file or directory"
        " (see SSL_CERT_FILE)"
    )


def test_an_environment_that_no_item_takes_is_told_all_the_same() -> None:
    own = [item("one", env_mode="math")]

    assert told(lambda: preflight.check_names(config(env_mode="nowhere"), own)).startswith("--env-mode: unknown")
    assert preflight.check_names(RunConfig(), own) == {"math"}


@pytest.mark.parametrize("count", [1, 2])
def test_items_that_are_left_out_are_told_and_the_first_where_none_is_left(count: int) -> None:
    """What nothing here can set up is left out though wrong items are not."""
    unsupported = [
        Item(one.id, "?", metadata={**one.metadata, "config": [{"type": f"no_step_{one.id}", "parameters": {}}]})
        for one in (osworld_item(f"u{number}", right=True) for number in range(count))
    ]
    right = osworld_item("right", right=True)

    found, left_out = preflight.check_items(config(env_mode="osworld"), [*unsupported, right])

    assert found == [right]
    assert [sentence.partition(" is not ")[0] for sentence in left_out] == [
        f"item 'u{number}': config, step 1: no_step_u{number}" for number in range(count)
    ]
    says = told(lambda: preflight.check_items(config(env_mode="osworld"), unsupported))
    assert says.startswith(f"none of the {count} items is valid, the first because: item 'u0': config, step 1: ")


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"env_mode": "math", "metric": "exact_match"}, True),
        ({"env_mode": "math", "metric": "exact_match", "evaluate_results": False}, False),
        ({"env_mode": "simulated", "metric": "exact_match"}, False),
    ],
)
def test_a_reference_is_checked_where_answers_are_compared_with_it(options: dict[str, Any], refused: bool) -> None:
    without = [Item("one", "?", "")]

    says = told(lambda: preflight.check_items(config(**options), without))

    said = (
        "item 'one': has no answer that exact_match could compare with; --no-evaluate-results rolls out without scores"
    )
    assert says == (said if refused else "")


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (KeyError("seconds"), "item 'one': environment 'simulated': check_item: KeyError: 'seconds'"),
        (UserError("this machine lacks it"), "this machine lacks it"),
        (ValueError("is wrong"), "none of the 1 items is valid, the first because: item 'one': is wrong"),
    ],
)
def test_a_defect_of_an_environments_own_check_is_told_as_that(
    monkeypatch: pytest.MonkeyPatch, problem: Exception, says: str
) -> None:
    def check_item(*_: object) -> None:
        raise problem

    monkeypatch.setattr(SimulatedEnvironment, "check_item", check_item)

    lenient = config(data={"skip_invalid": True})
    assert told(lambda: preflight.check_items(lenient, [item()])) == says


def described(folder: Path, **options: Any) -> RunDescription:
    description = RunDescription(folder)
    items = [Item("ü", "wie viele?")]
    description.create(config(**options), items, data_path="x", data_name="x", embedded=False, asks_model=False)
    return description


def test_items_are_written_as_they_are(tmp_path: Path) -> None:
    description = described(tmp_path / "run")

    assert '"ü"' in (tmp_path / "run" / "items.jsonl").read_text("utf-8")
    assert description.answerer() is None
    assert description.agent() == "simulated"
    assert description.embedded() is False


def test_a_resume_changes_only_what_it_may_and_keeps_where_the_run_asked_before(tmp_path: Path) -> None:
    description = described(tmp_path / "run", model={"name": "m", "base_url": "http://one/v1"}, max_cost=1.0)
    before, written = description.document(), (tmp_path / "run" / "run.json").stat()

    description.record_resume(description.config(), embedded=False)
    assert (tmp_path / "run" / "run.json").stat().st_ino == written.st_ino, "nothing has changed"

    for url, limit, embedded, earlier in (
        ("http://two/v1", 1.0, False, ["http://one/v1"]),
        (None, 2.0, False, ["http://one/v1"]),
        ("http://two/v1", 2.0, True, ["http://one/v1"]),
        ("http://three/v1", 2.0, True, ["http://one/v1", "http://two/v1"]),
    ):
        model = {"name": "other", "base_url": url, **PRICES}
        description.record_resume(config(model=model, max_cost=limit, max_attempts=9), embedded=embedded)
        assert description.document().get("earlier_base_urls") == earlier
        assert (description.config().max_cost, description.embedded()) == (limit, embedded)
        assert description.config().model.base_url == (url or "http://two/v1")
        assert description.config().model.name == "m"
        assert description.config().model.prompt_price == 1.0
        assert description.config().max_attempts == before["config"]["max_attempts"]


def test_a_description_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    description = described(tmp_path / "run")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rollout_tasks.runs.description.write_whole", full)

    says = told(lambda: description.record_resume(config(max_cost=5.0), embedded=True))
    assert says == f"{tmp_path}/run/run.json cannot be written: No space left on device"


def test_a_description_of_an_earlier_version_says_less(tmp_path: Path) -> None:
    described(tmp_path / "run", model={"name": "m"})
    path = tmp_path / "run" / "run.json"
    document = json.loads(path.read_text())
    del document["asks_model"], document["embedded"]
    path.write_text(json.dumps(document))

    description = RunDescription(tmp_path / "run")
    assert (description.answerer(), description.embedded()) == ("m", None)
