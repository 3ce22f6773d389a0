"""Which logins Flower may start with; that it does not start without one is in integration/worker/test_flower.py."""

from __future__ import annotations

import pytest

from rollout_tasks.flower_login import why_unusable


@pytest.mark.parametrize(
    ("logins", "problem"),
    [
        (None, "Flower has no login"),
        ([], "Flower has no login"),
        ([""], "without a colon"),
        (["secret"], "without a colon"),
        ([":"], "without a user"),
        ([":secret"], "without a user"),
        (["user:"], "without a password"),
        (["user:secret", "more"], "without a colon"),
        (["user:sécret"], "nobody can log in with"),
        (["user:sec\nret"], "nobody can log in with"),
    ],
)
def test_a_login_that_cannot_be_used_is_one_sentence(logins: list[str] | None, problem: str) -> None:
    said = why_unusable(logins, other_login=False)

    assert said is not None
    assert problem in said
    assert "set FLOWER_BASIC_AUTH to USER:PASSWORD" in said
    assert "secret" not in said


@pytest.mark.parametrize("logins", [["user:secret"], ["user:a:b"], ["user:a password"], ["one:secret", "two:secret"]])
def test_logins_that_can_be_used_are_taken(logins: list[str]) -> None:
    assert why_unusable(logins, other_login=False) is None
    assert why_unusable(logins, other_login=True) is None


def test_who_has_people_log_in_otherwise_needs_none() -> None:
    assert why_unusable(None, other_login=True) is None
    assert why_unusable(["secret"], other_login=True) is not None
