"""Celery's own environment variables, which it prefers to any setting, do not lead messages away from the run store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

ADDRESSES = """
import json
from rollout_tasks.app import app
conf = app.conf
print(json.dumps([conf.broker_url, conf.broker_read_url, conf.broker_write_url, conf.result_backend.partition("+")[2]]))
"""
OURS, OTHER = "redis://127.0.0.1:1001/0", "redis://127.0.0.1:2002/0"


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({"REDIS_URL": OURS}, OURS),
        ({"REDIS_URL": OURS, "CELERY_BROKER_URL": OTHER}, OURS),
        ({"ROLLOUT_REDIS_URL": OURS, "REDIS_URL": OTHER, "CELERY_BROKER_URL": OTHER}, OURS),
        ({"REDIS_URL": OURS, "CELERY_BROKER_READ_URL": OTHER, "CELERY_BROKER_WRITE_URL": OTHER}, OURS),
        ({"REDIS_URL": OURS, "CELERY_RESULT_BACKEND": OTHER}, OURS),
        ({"CELERY_BROKER_URL": OURS}, OURS),
    ],
)
def test_every_message_goes_where_the_run_store_is(variables: dict[str, str], address: str) -> None:
    kept = {name: value for name, value in os.environ.items() if "REDIS" not in name and "CELERY" not in name}
    done = subprocess.run(
        [sys.executable, "-c", ADDRESSES],
        cwd=REPOSITORY,
        env=kept | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(json.loads(done.stdout)) == {address}


@pytest.mark.parametrize("variable", ["CELERY_BROKER_URL", "REDIS_URL"])
def test_children_hear_of_the_options_of_tls_whichever_variable_has_them(variable: str) -> None:
    url = OURS.replace("redis:", "rediss:") + "?ssl_cert_reqs=none"
    kept = {name: value for name, value in os.environ.items() if "REDIS" not in name and "CELERY" not in name}
    child = "from rollout_tasks.settings import settings; print(settings().redis_address)"
    parent = f"import rollout_tasks.app, subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    done = subprocess.run(
        [sys.executable, "-c", f"{parent}"],
        cwd=REPOSITORY,
        env=kept | {variable: url},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == url


def test_settings_in_the_current_folder_are_somebody_elses(misleading_folder: Path) -> None:
    for file in misleading_folder.glob("*.py"):
        if file.stem != "celeryconfig":
            file.unlink()

    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "rollout_tasks", "report"],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "worker_disable_prefetch: True" in done.stdout
