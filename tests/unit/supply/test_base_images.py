"""A release starts from pinned images: a tag alone is refused, wherever it is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tools.supply_chain.base_images import COMPOSE, BaseImage, base_images

DIGEST = "@sha256:" + "0123456789abcdef" * 4
PINNED = {"BASE_IMAGE": f"python:3.12-slim-bookworm{DIGEST}", "BROKER_IMAGE": f"registry.example:5000/valkey{DIGEST}"}


def images(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/supply.py", "images", "--json"]
    inherited = {name: value for name, value in os.environ.items() if not name.endswith("_IMAGE")}
    return subprocess.run(
        command, cwd=REPOSITORY, env=inherited | environment, capture_output=True, text=True, timeout=60
    )


def test_every_image_of_the_compose_file_can_be_pinned() -> None:
    done = images(**PINNED)
    assert done.returncode == 0, done.stderr
    assert {one["variable"]: one["image"] for one in json.loads(done.stdout)} == PINNED


@pytest.mark.parametrize("variable", PINNED)
def test_one_without_a_digest_is_refused(variable: str) -> None:
    done = images(**PINNED | {variable: "valkey:8"})
    assert done.returncode == 1
    assert "without a digest" in done.stderr
    assert {one["variable"]: one["pinned"] for one in json.loads(done.stdout)}[variable] is False


@pytest.mark.parametrize(
    "image", ["valkey", "valkey:8", "valkey@sha256:abc", f"valkey{DIGEST}0", f"a valkey{DIGEST}", ""]
)
def test_only_a_whole_digest_pins(image: str) -> None:
    assert not BaseImage("BROKER_IMAGE", image).pinned


def test_the_environment_goes_before_the_env_file(tmp_path: Path) -> None:
    (tmp_path / COMPOSE).write_text("services: {broker: {image: '${BROKER_IMAGE:-valkey}'}, flower: {image: flower}}")
    assert [one.image for one in base_images(tmp_path, {})] == ["valkey", "flower"]
    (tmp_path / ".env").write_text("BROKER_IMAGE=from-the-file")
    assert [one.image for one in base_images(tmp_path, {})] == ["from-the-file", "flower"]
    assert [one.image for one in base_images(tmp_path, {"BROKER_IMAGE": "ours"})] == ["ours", "flower"]
