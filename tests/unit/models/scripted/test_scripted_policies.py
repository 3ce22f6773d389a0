"""Derived scripts, wrong answers and verdicts."""

import pytest

from benchmark.items import Item
from benchmark.judge import judge_messages
from benchmark.metrics import metric
from rollout_tasks.models.scripted.policies import choose, is_judge_request, verdict, worked_example, wrong_text


def test_a_worked_answer_becomes_one_call_with_all_its_calculations_and_the_result():
    worked = "He sold 48/2 = <<48/2=24>>24 clips.\nThat is 48+24 = <<48+24=72>>72.\n#### 72"

    turns = worked_example(Item("a", "?", worked))

    assert turns == [
        {"tool_calls": [{"name": "calculator", "arguments": {"expressions": ["48/2", "48+24"]}}]},
        {"text": "The answer is 72."},
    ]


def test_a_worked_answer_without_calculations_is_only_said():
    assert worked_example(Item("a", "?", "Nothing to compute.\n#### 2,125")) == [{"text": "The answer is 2,125."}]


def test_the_worked_answer_is_found_after_an_answer_pattern_took_the_result_out():
    item = Item("a", "?", "72", {"worked_answer": "<<48+24=72>>72\n#### 72"})

    assert worked_example(item) == worked_example(Item("a", "?", "<<48+24=72>>72\n#### 72"))


@pytest.mark.parametrize("answer", ["", "72", "#### ", "see #### 72 above"])
def test_an_answer_without_a_result_line_gives_no_script(answer):
    assert worked_example(Item("a", "?", answer)) is None


def test_the_choice_has_the_asked_size_and_depends_on_the_seed_but_not_on_the_order():
    ids = [f"item_{number}" for number in range(100)]

    assert len(set(choose(ids, 37, seed=1))) == 37
    assert choose(ids, 37, seed=1) == choose(reversed(ids), 37, seed=1)
    assert set(choose(ids, 37, seed=1)) != set(choose(ids, 37, seed=2))


@pytest.mark.parametrize(
    "answer",
    [
        "0",
        "1",
        "1.0000001",
        "18",
        "9",
        "-5",
        "2,315.25",
        "20.0",
        "3 of 7",
        "Paris",
        "no",
        "10" * 30,
        "<<1+1=2>>2\n#### 2",
    ],
)
@pytest.mark.parametrize("name", ["exact_match", "numeric_match", "contains_answer", "exact_match_normalized"])
def test_a_wrong_text_is_wrong_to_every_metric(name, answer):
    assert metric(name)(wrong_text(answer), answer, Item("a", "?", answer)).value == 0.0


@pytest.mark.parametrize(
    ("reference", "graded", "expected"),
    [
        ("18", "The answer is 18.", "Correct"),
        ("18", "First 18, no: 19", "Incorrect"),
        ("70,000", "70000.0 dollars", "Correct"),
        ("18", "eighteen", "Incorrect"),
        ("18", "", "Incorrect"),
        ("Paris", "It is paris!", "Correct"),
        ("Paris", "It is Parish", "Incorrect"),
        ("no", "I do not know", "Incorrect"),
        ("5", "Answer to grade:\n5", "Correct"),
    ],
)
def test_verdicts(reference, graded, expected):
    assert verdict(judge_messages("How many?\nReference answer: unknown", reference, graded)) == expected


def test_a_judges_request_is_known_by_its_system_message():
    assert is_judge_request(judge_messages("?", "1", "1"))
    assert not is_judge_request([{"role": "system", "content": "You solve problems."}])
    assert not is_judge_request([])


def test_a_judges_request_without_its_fields_gets_no_verdict():
    assert verdict([{"role": "user", "content": "Is 18 right?"}]) is None
