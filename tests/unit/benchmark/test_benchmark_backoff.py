from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from benchmark.backoff import retry_after

SERVERS_NOW = datetime(2020, 2, 29, 23, 59, 30, tzinfo=UTC)


def dated(seconds: float, *, now: datetime = SERVERS_NOW) -> str:
    return format_datetime(now + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("", None), ("7", 7.0), ("0.5", 0.5), ("0", None), ("-3", None), ("soon", None), ("nan", None), ("inf", None)],
)
def test_retry_after_in_seconds(header: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": header, "date": dated(0)}) == seconds


def test_no_retry_after() -> None:
    assert retry_after({}) is None
    assert retry_after({"date": dated(0)}) is None


@pytest.mark.parametrize(("wait", "seconds"), [(90, 90.0), (1, 1.0), (0, None), (-1, None), (-90, None)])
def test_a_date_is_compared_with_the_servers_own(wait: float, seconds: float | None) -> None:
    assert retry_after({"retry-after": dated(wait), "date": dated(0)}) == seconds


@pytest.mark.parametrize("date", [{}, {"date": ""}, {"date": "today"}, {"date": "Mon, 00 Jan 0000 99:99:99 +9999"}])
def test_a_server_without_a_date_has_this_machines(date: dict[str, str]) -> None:
    seconds = retry_after({"retry-after": dated(90, now=datetime.now(UTC)), **date})

    assert seconds is not None
    assert 60 < seconds <= 90
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT", **date}) is None


@pytest.mark.parametrize("zone", ["GMT", "+0000", "-0000", "+0100", ""])
def test_a_date_may_name_its_zone_in_several_ways(zone: str) -> None:
    hour = "01" if zone == "+0100" else "00"

    assert retry_after({"retry-after": f"Sun, 01 Mar 2020 {hour}:00:00 {zone}".strip(), "date": dated(0)}) == 30.0


@pytest.mark.parametrize("header", ["Fri, 31 Dec 99999 23:59:59 GMT", "Mon, 00 Jan 0000 99:99:99 +9999", "GMT"])
def test_a_date_that_is_none_asks_for_nothing(header: str) -> None:
    assert retry_after({"retry-after": header, "date": dated(0)}) is None
