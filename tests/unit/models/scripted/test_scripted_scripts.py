"""Where scripts come from, which variant is played, and what is said about wrong ones."""

import json

import pytest

from benchmark.items import Item, load_items
from benchmark.metrics import metric
from rollout_tasks.errors import UserError
from rollout_tasks.models.scripted.scripts import load_scripts, uncovered

FINAL = [{"text": "It is 4."}]


def item(item_id="a", answer="4", **metadata):
    return Item(item_id, "2 + 2?", answer, metadata)


def said(scripts, item_id="a", **which):
    turns = scripts.find(item_id, **which)
    return None if turns is None else [turn.text for turn in turns]


def test_an_items_own_script_goes_before_its_worked_answer_and_the_script_file_before_both(tmp_path):
    file = tmp_path / "scripts.json"
    file.write_text(json.dumps({"a": [{"text": "from the file"}]}))
    items = [item("a", script=FINAL), item("b", "#### 9", script=FINAL), item("c", "#### 9"), item("d")]

    scripts = load_scripts(items, file)

    assert [said(scripts, item_id) for item_id in "abcd"] == [
        ["from the file"],
        ["It is 4."],
        ["The answer is 9."],
        None,
    ]
    assert uncovered(items, file) == ["d"]


def test_the_closest_variant_is_played():
    variants = {"*": [{"text": "any"}], "1": [{"text": "index 1"}], "1/2": [{"text": "index 1, attempt 2"}]}

    scripts = load_scripts([item(script=variants)])

    assert said(scripts, index=0, attempt=1) == ["any"]
    assert said(scripts, index=1, attempt=1) == ["index 1"]
    assert said(scripts, index=1, attempt=2) == ["index 1, attempt 2"]


def test_an_attempt_without_a_variant_has_no_script():
    assert said(load_scripts([item(script={"1": FINAL})]), index=0) is None


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ([], "item 'a': script: must not be empty"),
        ("text", "item 'a': script: must be a mapping, got 'text'"),
        ([{}], "script: 0: needs text or tool_calls"),
        ([{"txt": "4"}], "script: 0.txt: is not an option"),
        ({"1": [{"text": "4"}, {"txt": "4"}]}, "script: 1.1.txt: is not an option"),
        ([{"tool_calls": [{"name": "calculator"}]}], "script: 0.tool_calls.0.arguments: is missing"),
        ([{"tool_calls": [{"name": "calculator", "arguments": "1+1"}]}], "arguments: must be a mapping, got '1+1'"),
        ({"first": FINAL}, "script: has a key that must match "),
        ({}, "script: must not be empty"),
    ],
)
def test_a_wrong_script_names_item_and_place(script, problem):
    with pytest.raises(UserError) as caught:
        load_scripts([item(script=script)])

    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is not JSON"),
        ("[]", "must be an object of item ids"),
        ('{"z": [{"text": "4"}]}', "no item 'z'"),
        ('{"a": [{}]}', "'a': 0: needs text or tool_calls"),
        (None, "No such file"),
    ],
)
def test_a_wrong_script_file_is_named(tmp_path, content, problem):
    file = tmp_path / "scripts.json"
    if content is not None:
        file.write_text(content)

    with pytest.raises(UserError, match=r"^script file .*scripts\.json") as caught:
        load_scripts([item()], file)

    assert problem in str(caught.value)


def test_more_wrong_answers_than_scripts_are_refused():
    with pytest.raises(UserError, match="cannot corrupt 2 answers: only 1 items have a script"):
        load_scripts([item(script=FINAL), item("b")], corrupt=2)


def test_a_corrupted_script_keeps_its_calls_and_changes_its_end():
    call = {"tool_calls": [{"name": "calculator", "arguments": {"expressions": ["2+2"]}}]}

    scripts = load_scripts([item(script={"*": [call, *FINAL], "1": FINAL})], corrupt=1)

    turns = scripts.find("a")
    assert turns is not None
    assert turns[0].tool_calls[0].name == "calculator"
    assert turns[1].text == "1"
    assert said(scripts, index=1) == ["1"]


def test_of_gsm8k_every_item_has_a_script_and_exactly_the_asked_number_ends_wrong(shared_data):
    path = shared_data / "gsm8k" / "test.jsonl"
    asked = load_items(path, answer_pattern="#### (.+)").items
    numeric_match = metric("numeric_match")

    def mean(corrupt):
        scripts = load_scripts(load_items(path).items, corrupt=corrupt)
        finals = {item.id: scripts.find(item.id)[-1].text for item in asked}
        return sum(numeric_match(finals[item.id], item.answer, item).value for item in asked) / len(asked)

    assert uncovered(asked) == []
    assert mean(corrupt=0) == 1.0
    assert mean(corrupt=137) == 0.863
