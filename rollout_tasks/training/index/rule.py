"""The rule that says which rollouts of an item are a trainable group."""

from __future__ import annotations

from dataclasses import dataclass

from rollout_tasks.errors import UserError

_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class Rule:
    """A group: the newest `size` unused rollouts of an item, if the model's versions are new enough and not all succeeded.

    Raises:
        UserError: A number makes no sense.
    """

    size: int = 8
    """Rollouts of a group."""
    versions: int = 2
    """Of how many versions of the model: the newest that the index knows."""
    staleness: int | None = None
    """In place of `versions`: by how many steps a rollout's version may be older than the newest."""
    pool: bool = True
    """Whether one older unused success of the item joins a group without any reward."""

    def __post_init__(self) -> None:
        for name, value, least in (
            ("size", self.size, 1),
            ("versions", self.versions, 1),
            ("staleness", self.staleness, 0),
        ):
            if value is not None and not least <= value <= _MOST:
                raise UserError(f"{name}: must be between {least} and {_MOST:,}, got {value}")
