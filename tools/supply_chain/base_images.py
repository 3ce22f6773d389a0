"""The images that docker-compose.yml takes from a registry, and whether each is pinned by its content and not only by its name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from dotenv import dotenv_values

COMPOSE = "docker-compose.yml"
_VARIABLE = re.compile(r"\$\{(?P<name>\w+):-(?P<default>[^}]*)\}")
_PINNED = re.compile(r"\S+@sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class BaseImage:
    """One image."""

    variable: str
    """Names another; empty where none does."""
    image: str

    @property
    def pinned(self) -> bool:
        """Whether it is named by the digest of its content."""
        return _PINNED.fullmatch(self.image) is not None


def base_images(repository: Path, environment: Mapping[str, str]) -> list[BaseImage]:
    """Returns the images, as Docker Compose would take them.

    Args:
        repository: Where docker-compose.yml is, and .env where there is one.
        environment: Goes before what .env says.
    """
    said = {**dotenv_values(repository / ".env"), **environment}
    compose = yaml.safe_load((repository / COMPOSE).read_text("utf-8"))
    found = {}
    for text in _named(compose["services"].values()):
        variable = _VARIABLE.fullmatch(text)
        name, default = (variable["name"], variable["default"]) if variable else ("", text)
        found[text] = BaseImage(name, said.get(name) or default)
    return list(found.values())


def _named(services: Iterator[Mapping[str, object]]) -> Iterator[str]:
    """Yields what services start from: the image of one that is not built here, the base of one that is."""
    for service in services:
        match service:
            case {"build": {"args": {"BASE": str(base)}}}:
                yield base
            case {"image": str(image)}:
                yield image
