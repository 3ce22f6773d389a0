"""The balancing bench: its command runs, and our picks in it are the pool's own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

SMALL = ("--workers", "6", "--sessions", "6", "--rounds", "1")


def bench(*options: str) -> str:
    command = [sys.executable, "scripts/bench/balancing.py", *SMALL, *options]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.slow
def test_one_seed_gives_the_same_figures() -> None:
    first, second = (json.loads(bench("--json", "--seed", "3")) for _ in range(2))

    assert list(first["cases"]) == ["equal replicas", "one replica at half speed"]
    for case, policies in first["cases"].items():
        assert list(policies) == ["model pool", "least loaded", "consistent hashing", "round robin"]
        for name, own in policies.items():
            again = second["cases"][case][name]
            assert {key: own[key] for key in own if "pick" not in key} == {
                key: again[key] for key in again if "pick" not in key
            }
            assert 0 < own["call_p50_s"] <= own["call_p90_s"] < own["makespan_s"]
        assert policies["model pool"]["hits"] > policies["round robin"]["hits"]
        assert 0 < policies["model pool"]["pick_p50_ms"] <= policies["model pool"]["pick_p99_ms"]
    assert 0 < first["cost_of_a_pick"]["script_mean_ms"] < first["cost_of_a_pick"]["pick_p99_ms"]


def test_the_tables_name_every_policy() -> None:
    printed = bench()

    assert printed.count("model pool") == printed.count("consistent hashing") == 2
    assert "a pick with 8 replicas and 1000 calls in flight: p50 " in printed
