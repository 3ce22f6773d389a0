"""The configuration says what is wrong with a value in words that a user can act on."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.config_fields import check_url
from rollout_tasks.errors import UserError

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"num_rollouts": 0}, "--num-rollouts: must be at least 1, got 0"),
    ({"num_rollouts": "x"}, "--num-rollouts: must be a whole number, got 'x'"),
    ({"num_rollouts": "2.5"}, "--num-rollouts: must be a whole number, got 2.5"),
    ({"num_rollouts": True}, "--num-rollouts: must be a whole number, got True"),
    ({"limits": {"max_turns": True}}, "--max-turns: must be a whole number, got True"),
    ({"limits": {"max_seconds": True}}, "--task-timeout: must be a number, got True"),
    ({"model": {"max_images": False}}, "--max-images: must be a whole number, got False"),
    ({"priority": 101}, "--priority: must be at most 100, got 101"),
    ({"limits": {"max_seconds": 0}}, "--task-timeout: must be more than 0, got 0"),
    ({"limits": {"max_seconds": "nan"}}, "--task-timeout: must be a finite number, got 'nan'"),
    ({"limits": {"max_seconds": []}}, "--task-timeout: must be a number, got []"),
    ({"limits": {"max_seconds": 1e10}}, "--task-timeout: must be at most 999999, got 10000000000.0"),
    ({"model": {"timeout": 1e10}}, "--model-timeout: must be at most 999999, got 10000000000.0"),
    ({"evaluate_results": "perhaps"}, "--evaluate-results: must be true or false, got 'perhaps'"),
    ({"metric": 5}, "--metric: must be text, got 5"),
    ({"model": {"name": ""}}, "--model: must not be empty"),
    ({"model": {"images_in": "x"}}, "--images-in: must be user or tool, got 'x'"),
    ({"model": {"extra_body": "{"}}, "--extra-body: is not JSON: Expecting property name"),
    ({"model": {"extra_body": "[1]"}}, "--extra-body: must be a JSON object, got [1]"),
    ({"model": {"extra_body": '{"a": NaN}'}}, "--extra-body: holds something that JSON does not have"),
    ({"model": {"extra_body": '{"a": "\\ud800"}'}}, "--extra-body: holds something that JSON does not have"),
    ({"model": {"extra_body": {"a": b""}}}, "--extra-body: holds something that JSON does not have"),
    ({"model": {"extra_body": "[" * 100_000}}, "--extra-body: is not JSON: "),
    ({"model": {"extra_body": {"a": [[{"x-api-key": "sk"}]]}}}, "--extra-body: may not hold x-api-key, which run.json"),
    (
        {"model": {"extra_body": {"Authorization": "Bearer sk"}}},
        "--extra-body: may not hold Authorization, which run.json",
    ),
    ({"model": {"extra_body": {"seed": 1}}}, "--extra-body: may not set seed, which the run sets itself"),
    ({"model": {"seed": "x"}}, "--model-seed: must be a whole number, got 'x'"),
    ({"output_dir": 5}, "--output-dir: must be a path, got 5"),
    ({"output_dir": "a\0b"}, "--output-dir: is not a file name in UTF-8, got 'a\\x00b'"),
    ({"data": {"path": "\udcff.jsonl"}}, "--data-path: is not a file name in UTF-8, got '\\udcff.jsonl'"),
    ({"limits": 5}, "limits: must be a mapping of options, got 5"),
    ({"limits": {"max_turn": 5}}, "limits.max_turn: is not an option; did you mean max_turns?"),
    ({"zzz": 1}, "zzz: is not an option"),
    ({"simulated": {"seconds": 3}}, "simulated.seconds: must be two numbers, the shortest and the longest, got 3"),
    (
        {"simulated": {"seconds": [1, 2, 3]}},
        "simulated.seconds: must be two numbers, the shortest and the longest, got [1, 2, 3]",
    ),
    ({"simulated": {"seconds": [3, 1]}}, "simulated.seconds: the shortest must not be above the longest, got 3 and 1"),
    ({"simulated": {"seconds": [-1, 1]}}, "simulated.seconds.0: must be at least 0, got -1"),
    ({"simulated": {"fail": "foo"}}, "simulated.fail: must be env_setup, env_step, env_evaluate, vm_lost,"),
    ({"vm": {"provider_options": {1: 2}}}, "vm.provider_options: has a key that is not text, got 1"),
    ({"run_id": "../x"}, "--run-id: may have letters, digits, '_', '.' and '-', the first a letter or digit,"),
    ({"vm": {"pool": "x" * 65}}, "at most 64 characters, got 'xxx"),
    ({"data": {"answer_pattern": "("}}, "--answer-pattern: is not a regular expression: missing ) at position 1"),
    ({"data": {"answer_pattern": "x"}}, "--answer-pattern: needs one group (...) around the answer"),
]


@pytest.mark.parametrize(("values", "sentence"), WRONG, ids=lambda value: ascii(value)[:40])
def test_a_wrong_option_is_named_by_its_spelling_with_what_is_wrong(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_config(values)

    assert sentence in str(caught.value)


JARGON = ("valid", "should", "input", "instance", "tuple", "str", "dict", "field", "union", "enum", "none required")
ODD_VALUES = [None, True, -1, 0, 2.5, math.inf, math.nan, 10**400, "x", "", "a\0b", "x" * 5000]
ODD_VALUES += [[], [1], [3, 1], [1, 2, 3], ["a", "b"], {}, {"a": 1}, {1: 2}]


def paths(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        yield (*above, name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from paths(field.annotation, (*above, name))


@pytest.mark.parametrize("path", list(paths(RunConfig)), ids=".".join)
def test_whatever_an_option_is_given_the_answer_is_one_plain_sentence(path: tuple[str, ...]) -> None:
    for odd in ODD_VALUES:
        values: Any = odd
        for key in reversed(path):
            values = {key: values}
        try:
            parse_config(values, where="run.yaml")
        except UserError as error:
            said = str(error)
            assert said.startswith(f"run.yaml: {'.'.join(path)}"), said
            clause = said.removeprefix(f"run.yaml: {'.'.join(path)}").split(", got ")[0]
            assert len(said) < 300
            assert len(said.splitlines()) == 1
            assert not [word for word in JARGON if re.search(rf"\b{word}\b", clause.lower())], said


def test_a_wrong_value_of_a_file_is_named_by_file_and_key() -> None:
    with pytest.raises(UserError, match=r"^run\.yaml: limits\.max_turns: must be at least 1, got 0$"):
        parse_config({"limits": {"max_turns": 0}}, where="run.yaml")


def test_more_fields_of_a_request_come_as_json_or_as_a_mapping() -> None:
    for body in ('{"top_k": 20}', {"top_k": 20}):
        assert parse_config({"model": {"extra_body": body}}).model.extra_body == {"top_k": 20}


@pytest.mark.parametrize(("given", "most"), [("all", None), (None, None), ("0", 0), (3, 3)])
def test_pictures_may_be_limited_or_not(given: Any, most: int | None) -> None:
    assert parse_config({"model": {"max_images": given}}).model.max_images == most


def test_runs_of_the_version_before_are_read_and_their_workers_read_runs_with_the_defaults() -> None:
    document = RunConfig().model_dump(mode="json")
    for added in ("max_images", "keep_thinking"):
        del document["model"][added]

    assert parse_config(document) == RunConfig()
    assert "model" not in RunConfig().model_dump(exclude_defaults=True), "as workers get it"


def test_fields_that_are_only_named_like_secrets_are_no_secrets() -> None:
    schema = {"properties": {"password": {"type": "string"}}, "required": ["password"]}
    body = {"schema": schema, "max_tokens": 5, "stop_token_ids": [1], "stop_token": "</s>", "add_token": "x"}

    assert parse_config({"model": {"extra_body": body}}).model.extra_body == body


def test_a_long_wrong_value_is_not_repeated_in_full() -> None:
    with pytest.raises(UserError) as caught:
        parse_config({"num_rollouts": "x" * 10_000})

    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "url",
    [
        "http://me:hunter2@host/v1",
        "http://:hunter2@host/v1",
        "http://hunter2@host/v1",
        "http://host/v1?key=hunter2",
        "hunter2",
        "ftp://host/hunter2",
        "http://hunter2:port/v1",
        "http:///hunter2",
        "http://host/v1\nhunter2",
        "http://host/v1#hunter2",
        "http://10.0.0.256:8000/hunter2",
        "http://☃/hunter2",
        "http://a..b/hunter2",
        f"http://{'a' * 64}/hunter2",
        "http://[v1.a]/hunter2",
        "http://[fe80::1%☃]/hunter2",
        "http://hunter 2/v1",
        f"http://host/hunter2/{'a' * 70_000}",
    ],
)
def test_an_endpoint_that_is_none_or_holds_a_secret_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_config({"model": {"base_url": url}})

    assert str(caught.value).startswith("--base-url: must ")
    assert "hunter2" not in str(caught.value)


def test_an_endpoint_loses_its_last_slash() -> None:
    assert parse_config({"model": {"base_url": "http://host:1/v1/"}}).model.base_url == "http://host:1/v1"


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.255:8000/v1",
        "https://api.example.com./v1",
        "http://my_model-1:80/v1",
        "http://[::1]:8000/v1",
        "http://[fe80::1%eth0]/v1",
        "http://münchen.example/v1",
        "http://数学.example/ü",
    ],
)
def test_an_unusual_endpoint_is_kept_as_it_is(url: str) -> None:
    assert parse_config({"model": {"base_url": url}}).model.base_url == url


@settings(deadline=None)
@given(st.lists(st.sampled_from([*"a1.-_:/[]%@\\~* é☃ａ", "256", "::1"]), max_size=20))
def test_what_is_taken_for_an_address_can_be_asked(parts: list[str]) -> None:
    try:
        url = check_url(f"http://{''.join(parts)}")
    except ValueError:
        return
    host = httpx2.URL(f"{url}/models").raw_host
    assert host.decode().encode("idna")  # what the system's resolver does with it


def test_text_from_a_command_line_becomes_the_values_types() -> None:
    config = parse_config(
        {"num_rollouts": "7", "limits": {"max_seconds": "1.5"}, "output_dir": "out", "priority": "-3"}
    )

    assert (config.num_rollouts, config.limits.max_seconds, config.output_dir, config.priority) == (
        7,
        1.5,
        Path("out"),
        -3,
    )


def test_a_configuration_reads_back_from_its_json() -> None:
    config = parse_config({"vm": {"num_vms": 2}, "simulated": {"seconds": [1, 2]}, "run_id": "a.b-c_1"})

    assert RunConfig.model_validate(config.model_dump(mode="json")) == config
    assert RunConfig.model_validate_json(config.model_dump_json(exclude_defaults=True)) == config


@pytest.mark.parametrize("url", ["s3://bucket/runs", "memory://x", "gs://a/b"])
def test_a_run_is_not_rolled_out_at_a_url(url: str) -> None:
    for place in (url, Path(url)):
        with pytest.raises(UserError, match=r"--output-dir: must be a folder, not a URL: .* rollouts copy RUN URL"):
            parse_config({"output_dir": place})
