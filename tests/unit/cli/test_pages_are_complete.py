"""Pages that list what there is have all of it: fields and options of the data, metrics, environments, commands, variables."""

from __future__ import annotations

import re

import pytest

from benchmark.metrics import metric_names
from benchmark.sources import find_entries
from rollout_tasks import registry
from rollout_tasks.cli.main import SUBCOMMANDS, load
from rollout_tasks.cli.run_options import config_options
from rollout_tasks.config import DataConfig
from rollout_tasks.models.scripted.scripts import Turn
from rollout_tasks.settings import Settings
from tests.conftest import REPOSITORY


def text_of(page: str) -> str:
    return (REPOSITORY / "docs" / page).read_text(encoding="utf-8")


def lacking(page: str, words: list[str]) -> list[str]:
    text = text_of(page)
    return [word for word in words if not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)]


def test_the_page_about_data_has_every_option_of_it() -> None:
    options = [option.spellings[0].split("/")[0] for option in config_options(DataConfig)]

    assert lacking("how-to/data.md", [*options, "`-`"]) == []


def test_the_page_about_data_has_every_format() -> None:
    with pytest.raises(Exception, match="unknown suffix") as refused:
        find_entries(REPOSITORY / "LICENSE")

    assert lacking("how-to/data.md", re.findall(r"\.\w+(?=[, ])", str(refused.value).partition("known are ")[2])) == []


def test_the_page_about_data_has_every_field_metric_and_environment() -> None:
    fields = ["`id`", "`question`", "`answer`", "`domain`", "`env_config`", "`metadata`", "`script`"]
    metrics = [f"`{name}`" for name in metric_names()]
    environments = [f"`{name}`" for name in registry.available_environments()]

    assert lacking("how-to/data.md", [*fields, *metrics, *environments]) == []
    assert lacking("how-to/data.md", ["200 bytes"]) == []


def test_the_format_of_scripts_has_every_key_of_a_turn() -> None:
    assert lacking("how-to/models.md", [f"`{key}`" for key in Turn.model_fields]) == []


def test_the_page_about_runs_has_every_command_of_a_runs_life() -> None:
    of_runs = [
        name
        for name, part in SUBCOMMANDS.items()
        if part.module in {"cli.runs", "cli.listing", "cli.show", "cli.rescore"}
    ]
    of_pools = load("pool").commands

    assert lacking("how-to/runs.md", [f"rollouts {name}" for name in of_runs if name != "run"]) == []
    assert lacking("how-to/runs.md", list(of_pools)) == []


def test_the_page_about_configuration_has_every_variable() -> None:
    names = []
    for field in Settings.model_fields.values():
        alias = field.validation_alias
        names += list(getattr(alias, "choices", [alias]))

    assert lacking("reference/configuration.md", [f"`{name}`" for name in names]) == []
