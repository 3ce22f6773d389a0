"""What the doctor says of Redis and the model: one row for each, true for runs here and for runs on workers."""

from __future__ import annotations

import os

import pytest

from rollout_tasks.cli.doctor import Finding, configured_services, services_lacking
from rollout_tasks.cli.doctor import services as look_at_services


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "REDIS_", "ROLLOUT_REDIS", "CELERY_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(str(tmp_path))  # where there is no .env


def services() -> dict[str, Finding]:
    found = list(look_at_services())
    assert [(one.about, one.name) for one in found] == [("service", "Redis"), ("service", "model endpoint")]
    return {one.name: one for one in found}


def test_without_redis_runs_are_this_machines_own() -> None:
    found = services()

    assert found["Redis"].there
    assert found["Redis"].says.startswith("REDIS_URL is not set: rollouts run starts a Valkey of its own")
    assert found["model endpoint"].there
    assert "rollouts run takes the scripted model" in found["model endpoint"].says
    assert "rollouts submit needs one" in found["model endpoint"].says
    assert not services_lacking(found.values())


def test_with_redis_a_model_is_lacking_for_runs_on_workers(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", redis_url)
    found = services()

    assert found["Redis"].there
    assert found["Redis"].says.startswith("answers at 127.0.0.1:")
    assert "rollouts submit sends runs there" in found["Redis"].says
    assert "rollouts run starts a Valkey of its own" in found["Redis"].says
    assert not found["model endpoint"].there
    assert "rollouts submit needs one" in found["model endpoint"].says
    assert not services_lacking(found.values()), "nothing that is configured is lacking"


@pytest.mark.parametrize("variable", ["REDIS_URL", "OPENAI_BASE_URL"])
def test_a_service_that_is_configured_and_cannot_be_used_is_lacking(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:1/v1" if variable == "OPENAI_BASE_URL" else "redis://127.0.0.1:1/0")
    found = services()

    assert configured_services() == {"Redis" if variable == "REDIS_URL" else "model endpoint"}
    assert services_lacking(found.values())
