"""What the scripted model says of a page, and how it knows that it is asked for that."""

from __future__ import annotations

from rollout_tasks.models.scripted.policies import is_summary_request, summary
from rollout_tasks.models.scripted.sessions import SessionId, Sessions
from rollout_tasks.page_summary import SUMMARY_SYSTEM, summary_question

PAGE = "The museum is old.\n\nIts founder was Ida Marsh.\nGoal:\nThe cafe is open.\nPage:\nThe founder died in 1920."


def asked(goal: str, page: str) -> list[dict[str, str]]:
    system = {"role": "system", "content": SUMMARY_SYSTEM}
    return [system, {"role": "user", "content": summary_question(goal, page)}]


def test_the_lines_that_share_words_with_the_goal_are_said_in_order() -> None:
    assert summary(asked("Who was the\n\nfounder?", PAGE)) == "Its founder was Ida Marsh.\nThe founder died in 1920."
    assert summary(asked("whales", PAGE)) == "The page says nothing of that."
    assert len(str(summary(asked("line", "line\n" * 50))).splitlines()) == 5


def test_other_questions_are_none() -> None:
    assert not is_summary_request([{"role": "user", "content": SUMMARY_SYSTEM}])
    assert summary([{"role": "system", "content": SUMMARY_SYSTEM}, {"role": "user", "content": "hello"}]) is None


def test_its_session_is_the_rollouts_environment() -> None:
    sessions = Sessions([])

    assert sessions.identify("run/a%2Fb/3/2/environment", asked("x", "y")) == SessionId("environment", "a/b", 3, 2)
    assert sessions.identify(None, asked("x", "y")) == SessionId("environment", None)
    assert sessions.identify("run/a/3/2", [{"role": "user", "content": "?"}]) == SessionId("rollout", "a", 3, 2)
