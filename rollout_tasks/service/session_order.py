"""What a session's process is told when it begins, and how observations go over its channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import Observation


@dataclass(frozen=True, slots=True)
class SessionOrder:
    """One session: which item is played, how, and where its record goes."""

    session_id: str
    item: Item
    config: RunConfig
    folder: Path
    """The session's own."""
    index: int = 0
    """Which of the item's rollouts it is, from 0."""
    lends_ports: bool = False
    """Whether the VM's ports are told, and led to this machine, for clients that use the desktop directly."""

    def as_dict(self) -> dict[str, Any]:
        """Returns it as JSON values; `from_dict` reads it back."""
        return {
            "session_id": self.session_id,
            "item": self.item.as_dict(),
            "config": self.config.model_dump(mode="json"),
            "folder": str(self.folder),
            "index": self.index,
            "lends_ports": self.lends_ports,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SessionOrder:
        """Reads what `as_dict` wrote."""
        return cls(
            session_id=values["session_id"],
            item=Item.from_dict(values["item"]),
            config=RunConfig.model_validate(values["config"]),
            folder=Path(values["folder"]),
            index=values["index"],
            lends_ports=values["lends_ports"],
        )


def packed(observation: Observation) -> tuple[dict[str, Any], Sequence[bytes]]:
    """Returns an observation as JSON values, and the bytes of its pictures."""
    return {"text": observation.text, "sizes": [len(image) for image in observation.images]}, observation.images


def unpacked(values: Mapping[str, Any], content: bytes) -> Observation:
    """Returns what `packed` packed."""
    images, start = [], 0
    for size in values["sizes"]:
        images.append(content[start : start + size])
        start += size
    return Observation(values["text"], tuple(images))
