from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from benchmark.backoff import retry_after


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, None), ("", None), ("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("soon", None), ("nan", None), ("inf", None)],
)
def test_retry_after_in_seconds(header: str | None, seconds: float | None) -> None:
    assert retry_after(header) == seconds


def test_retry_after_as_a_date() -> None:
    at = datetime.now(UTC) + timedelta(seconds=90)

    seconds = retry_after(format_datetime(at, usegmt=True))

    assert seconds is not None
    assert 60 < seconds <= 90
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
