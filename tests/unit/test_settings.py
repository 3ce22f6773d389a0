"""Settings of the environment and of .env: what is wrong with them is said in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import AliasChoices

from rollout_tasks.errors import UserError
from rollout_tasks.settings import Settings, settings


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    settings.cache_clear()
    yield
    settings.cache_clear()


@pytest.mark.parametrize("name", ["ROLLOUT_LEASE_TTL", "ROLLOUT_RECONCILE_EVERY", "ROLLOUT_VISIBILITY_TIMEOUT"])
@pytest.mark.parametrize("value", ["inf", "1e9", "0", "nan", "soon"])
def test_a_time_that_is_none_is_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(UserError, match=f"^{name}: must be ") as caught:
        settings()

    assert "\n" not in str(caught.value)


def test_an_env_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"# Schl\xfcssel\nROLLOUT_LEASE_TTL=50\n")

    with pytest.raises(UserError, match=r"^\.env cannot be read: it is not UTF-8$"):
        settings()


def documented(field: str) -> set[str]:
    """The variables for a setting."""
    alias = Settings.model_fields[field].validation_alias
    return {str(name) for name in alias.choices} if isinstance(alias, AliasChoices) else {str(alias)}


@pytest.mark.parametrize("place", ["environment", "file"])
@pytest.mark.parametrize("field", [name for name in Settings.model_fields if name.upper() not in documented(name)])
def test_another_programs_variable_that_is_called_as_a_setting_is_not_read(
    field: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = settings()
    settings.cache_clear()
    if place == "environment":
        monkeypatch.setenv(field.upper(), "1")
    else:
        (tmp_path / ".env").write_text(f"{field.upper()}=1\n{field}=1\n")

    assert settings() == before


@pytest.mark.parametrize("name", sorted(set().union(*map(documented, Settings.model_fields))))
def test_each_documented_variable_is_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in set().union(*map(documented, Settings.model_fields)):
        monkeypatch.delenv(other, raising=False)
    before = settings()
    settings.cache_clear()
    values = {"REDIS_URL": "redis://host/0", "BROKER_URL": "redis://host/0", "SEARCH_URL": "http://host:8888"}
    value = next((value for ending, value in values.items() if name.endswith(ending)), "1")
    (tmp_path / ".env").write_text(f"{name}={value}\n")

    assert settings() != before
