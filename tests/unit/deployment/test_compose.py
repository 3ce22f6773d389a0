"""What the containers of docker-compose.yml may do, and which secrets each has."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.conftest import REPOSITORY

COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ISOLATE = {"worker", "osworld"}
"""Those that make sandboxes and cells."""
ASK_MODELS = {"worker", "osworld", "finalizer", "cli"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_has_walls(name: str) -> None:
    service = SERVICES[name]

    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["read_only"] is True
    assert service["pids_limit"] == 4096
    assert service["mem_limit"].startswith("${CONTAINER_MEMORY:-")
    assert service["tmpfs"] == ["/tmp:mode=1777"]  # noqa: S108
    assert "privileged" not in service
    assert all("docker.sock" not in volume for volume in service.get("volumes", []))


@pytest.mark.parametrize("name", SERVICES)
def test_profiles_of_docker_are_left_only_where_something_isolates(name: str) -> None:
    unconfined = [option for option in SERVICES[name]["security_opt"] if option.endswith("=unconfined")]

    assert unconfined == (["seccomp=unconfined", "apparmor=unconfined"] if name in ISOLATE else [])


@pytest.mark.parametrize("name", SERVICES)
def test_each_has_the_secrets_that_it_needs(name: str) -> None:
    environment = SERVICES[name].get("environment", {})

    assert ("OPENAI_API_KEY" in environment) == (name in ASK_MODELS)
    assert ("REDIS_URL" in environment) == (name not in {"broker", "scripted"})
    assert ("FLOWER_BASIC_AUTH" in environment) == (name == "flower")


def test_ports_are_on_loopback_and_images_are_variables() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:5555:5555"]
    assert re.fullmatch(r"\$\{BROKER_IMAGE:-.+\}", SERVICES["broker"]["image"])
    builds = [service["build"] for service in SERVICES.values() if "build" in service]
    assert {build["args"]["BASE"].split(":-")[0] for build in builds} == {"${BASE_IMAGE"}
    assert "ARG BASE=" in (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
