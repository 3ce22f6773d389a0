"""Settings of the environment and of .env: what is wrong with them is said in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout_tasks.errors import UserError
from rollout_tasks.settings import settings


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
