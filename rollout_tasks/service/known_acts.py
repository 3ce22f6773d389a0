"""The acts of a session that were carried out: one that is sent again is answered, and not carried out again."""

from __future__ import annotations

from rollout_tasks.service.session_results import SessionRefused, Step


class KnownActs:
    """The keys of a session's acts, and the step of the last one: a client repeats a call before it makes another one."""

    def __init__(self) -> None:
        """Knows none."""
        self._keys: set[str] = set()
        self._latest: tuple[str, Step] | None = None

    def step_of(self, key: str) -> Step | None:
        """Returns the step of the act with a key; None if it was not carried out, or the key is empty.

        Raises:
            SessionRefused: It was, before the last one.
        """
        if not key or key not in self._keys:
            return None
        if self._latest is None or self._latest[0] != key:
            raise SessionRefused(f"the call {key!r} was carried out before the last one; what it returned is not kept")
        return self._latest[1]

    def add(self, key: str, step: Step) -> None:
        """Notes an act, unless its key is empty."""
        if key:
            self._keys.add(key)
            self._latest = (key, step)
