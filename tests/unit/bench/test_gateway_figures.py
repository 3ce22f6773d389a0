"""The figures of the gateway's bench."""

from __future__ import annotations

from scripts.bench.gateway import figures


def test_what_is_added_is_the_difference_of_medians_and_of_percentiles() -> None:
    direct = [1.0] * 50 + [2.0] * 49 + [9.0]
    found = figures({"direct": direct, "gateway": [value + 1.5 for value in direct]})

    assert found == {
        "direct_p50_ms": 1.5,
        "direct_p99_ms": 9.0,
        "gateway_p50_ms": 3.0,
        "gateway_p99_ms": 10.5,
        "added_p50_ms": 1.5,
        "added_p99_ms": 1.5,
    }
