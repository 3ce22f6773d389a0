"""Which answers of Redis are waited out, and for how long."""

from __future__ import annotations

import pytest
from redis._parsers.base import BaseParser
from redis.exceptions import ConnectionError, ResponseError

from rollout_tasks.redis_connections import PatientRetry, RedisRefuses, as_refusal


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", "OOM"),
        ("OOM command not allowed when used memory > 'maxmemory'. script: 1f2e, on @user_script:4.", "OOM"),
        ("ERR Error running script (call to f_1f2e): @user_script:3: @user_script: 3: -OOM command not allowed", "OOM"),
        ("READONLY You can't write against a read only replica.", "READONLY"),
        ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", "MISCONF"),
        ("NOREPLICAS Not enough good replicas to write.", "NOREPLICAS"),
        ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "MASTERDOWN"),
        ("CLUSTERDOWN The cluster is down", "CLUSTERDOWN"),
        ("TRYAGAIN Multiple keys request during rehashing of slot", "TRYAGAIN"),
        ("BUSY Redis is busy running a script.", "BUSY"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", ""),
        ("ERR unknown command 'READONLY '", ""),
        ("NOSCRIPT No matching script.", ""),
        ("ERR user_script:1: Script attempted to access nonexistent global variable 'BUSY'", ""),
    ],
)
def test_an_answer_that_will_be_another_one_later_is_told_from_a_wrong_command(answer: str, code: str) -> None:
    error = BaseParser.parse_error(answer)
    assert isinstance(error, ResponseError)

    refusal = as_refusal(error)

    assert (refusal is not None) == bool(code)
    assert f"Redis refuses: {code}" in str(refusal) or "Error running script" in str(refusal) or not code


class Server:
    """Fails with these errors, one after the other, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def nothing(_error: Exception) -> None:
    """What is done after each failure."""


@pytest.mark.parametrize(("tries", "failures", "answers"), [(0, 0, True), (0, 1, False), (2, 2, True), (2, 3, False)])
def test_a_lost_connection_is_tried_again_so_many_times(tries: int, failures: int, answers: bool) -> None:
    server = Server(*(ConnectionError("away") for _ in range(failures)))

    if answers:
        assert PatientRetry(tries).call_with_retry(server, nothing) == "answer"
    else:
        with pytest.raises(ConnectionError, match="away"):
            PatientRetry(tries).call_with_retry(server, nothing)
    assert server.calls == min(failures, tries) + 1


def test_a_refusal_is_waited_out_however_few_tries_a_lost_connection_gets(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(*(RedisRefuses("Redis refuses: OOM") for _ in range(5)))

    assert PatientRetry(0, refused_seconds=60).call_with_retry(server, nothing) == "answer"

    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "waiting for Redis: Redis refuses: OOM",
        "Redis works again",
    ]


def test_a_refusal_is_not_waited_out_for_ever_and_without_patience_not_at_all() -> None:
    for patience, calls in ((PatientRetry(1), 2), (PatientRetry(0, refused_seconds=0.2), 3)):
        server = Server(*(RedisRefuses("Redis refuses: OOM") for _ in range(100)))
        with pytest.raises(RedisRefuses):
            patience.call_with_retry(server, nothing)
        assert calls <= server.calls < 50


def test_a_refusal_of_an_hour_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("rollout_tasks.redis_connections.time.sleep", pauses.append)
    server = Server(*(RedisRefuses("Redis refuses: OOM") for _ in range(1800)))

    assert PatientRetry(0, refused_seconds=3600).call_with_retry(server, nothing) == "answer"

    assert max(pauses) == 2.0
    assert sum(pauses[10:]) > 0.9 * 2.0 * 1790


def test_connecting_within_a_command_is_not_repeated_by_itself() -> None:
    patience = PatientRetry(3)
    server = Server(*(ConnectionError("away") for _ in range(100)))

    with pytest.raises(ConnectionError):
        patience.call_with_retry(lambda: patience.call_with_retry(server, nothing), nothing)

    assert server.calls == 4
