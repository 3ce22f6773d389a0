"""Which request a fault rule hits, how often, and what is said about wrong rules."""

import json

import pytest

from rollout_tasks.errors import UserError
from rollout_tasks.models.scripted.faults import FaultKind, Faults, parse_faults, read_faults
from rollout_tasks.models.scripted.sessions import SessionId

FIRST = SessionId("rollout", "a", 0, 1)


def faults(*rules, seed=0):
    return Faults(parse_faults(list(rules), "rules"), seed)


@pytest.mark.parametrize(
    ("conditions", "hit"),
    [
        ({}, True),
        ({"item": "a", "index": 0, "attempt": 1, "turn": 2, "role": "rollout"}, True),
        ({"item": "b"}, False),
        ({"index": 1}, False),
        ({"attempt": 2}, False),
        ({"turn": 0}, False),
        ({"role": "judge"}, False),
    ],
)
def test_every_condition_must_hold(conditions, hit):
    rule = faults({"kind": "server_error", **conditions}).draw(FIRST, 2)

    assert (rule is not None) == hit


def test_a_rule_is_used_up_by_each_item_on_its_own():
    drawn = faults({"kind": "server_error", "times": 2})

    assert [drawn.draw(FIRST, 0) is not None for _ in range(3)] == [True, True, False]
    assert drawn.draw(SessionId("rollout", "b"), 0) is not None


def test_the_first_rule_that_fires_decides_and_a_used_up_one_makes_way():
    drawn = faults({"kind": "hang", "times": 1}, {"kind": "slow"})

    kinds = [rule.kind for _ in range(3) if (rule := drawn.draw(FIRST, 0))]

    assert kinds == [FaultKind.HANG, FaultKind.SLOW, FaultKind.SLOW]


def test_a_rate_is_kept_and_repeats_with_the_seed_whatever_the_order_of_requests():
    sessions = [SessionId("rollout", f"item_{number}") for number in range(2000)]
    rule = {"kind": "rate_limit", "rate": 0.1}

    def hit(order, seed):
        drawn = faults(rule, seed=seed)
        return {session.item_id for session in order if drawn.draw(session, 0)}

    assert hit(sessions, seed=1) == hit(sessions[::-1], seed=1)
    assert hit(sessions, seed=1) != hit(sessions, seed=2)
    assert 140 <= len(hit(sessions, seed=1)) <= 260


def test_a_request_that_failed_by_chance_may_pass_when_tried_again():
    drawn = faults({"kind": "rate_limit", "rate": 0.5})

    assert {drawn.draw(FIRST, 0) is None for _ in range(40)} == {True, False}


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ({"kind": "hang"}, "must be a list, got "),
        ([{}], "0.kind: is missing"),
        ([{"kind": "hang"}, {"kind": "explode"}], "1.kind: must be rate_limit, "),
        ([{"kind": "hang", "times": 0}], "0.times: "),
        ([{"kind": "hang", "rate": 1.5}], "0.rate: "),
        ([{"kind": "hang", "wait": 3}], "0.wait: is not an option"),
        ([{"kind": "server_error", "seconds": 3}], "0: seconds has no meaning for server_error"),
        ([{"kind": "hang", "retry_after": 3}], "0: retry_after has no meaning for hang"),
    ],
)
def test_a_wrong_rule_is_named(rules, problem):
    with pytest.raises(UserError) as caught:
        parse_faults(rules, "faults.json")

    assert str(caught.value).startswith(f"faults.json: {problem}")


def test_rules_are_read_from_a_file(tmp_path):
    file = tmp_path / "faults.json"
    file.write_text(json.dumps([{"kind": "rate_limit", "retry_after": 2}]))

    assert read_faults(file)[0].retry_after_seconds == 2


@pytest.mark.parametrize("content", ["", "not JSON", None])
def test_an_unreadable_file_is_named(tmp_path, content):
    file = tmp_path / "faults.json"
    if content is not None:
        file.write_text(content)

    with pytest.raises(UserError, match=r"^faults file .*faults\.json: "):
        read_faults(file)
