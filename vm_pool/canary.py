"""Whether a VM that was reset is like one that was just booted: the contamination canary.

A fingerprint is what a provider says of a VM: words for each of several probes, as the names of its processes. What any freshly
booted VM of the host was like is clean; a word that none of them had is contamination. What is missing is not looked for
here: that is what a provider's check is for. A desktop that has just come up may still be settling, so a strange word counts only
when it is still there at a deadline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

Fingerprint = Mapping[str, Sequence[str]]

SETTLE_SECONDS = 5.0
"""How long a VM may take after its check until it looks clean, or steady."""
_STEADY_LOOKS = 3
"""A fingerprint that is the same so many times in a row has settled."""
_STEADY_SECONDS = 0.25
_LOOK_SECONDS = 0.05


class Drift(RuntimeError):
    """A VM is not in its clean state; the sentence names the first probe that says so, and what it found."""


def settled(take: Callable[[], Fingerprint], seconds: float = SETTLE_SECONDS) -> Fingerprint:
    """A fingerprint that does not change any more, or the last one: nothing is wrong with a VM that never settles.

    Args:
        take: Takes it.
        seconds: How long to wait at most.
    """
    deadline = time.monotonic() + seconds
    last, same = take(), 1
    while same < _STEADY_LOOKS and time.monotonic() < deadline:
        time.sleep(_STEADY_SECONDS)
        now = take()
        last, same = now, same + 1 if now == last else 1
    return last


class CleanState:
    """What VMs of one kind are like when they are clean, learned from those that were just booted."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}
        self._guard = threading.Lock()

    def learn(self, take: Callable[[], Fingerprint], seconds: float = SETTLE_SECONDS) -> None:
        """Takes a freshly booted VM as an example, everything that it is until it has settled.

        Args:
            take: Takes its fingerprint.
            seconds: How long it may take to settle; nothing is wrong with one that never does.
        """
        settled(lambda: self._add(take()), seconds)

    def expect(self, take: Callable[[], Fingerprint], seconds: float = SETTLE_SECONDS) -> None:
        """Returns as soon as a VM that was reset looks clean.

        Raises:
            Drift: It still does not at the deadline.
        """
        deadline = time.monotonic() + seconds
        while (strange := self.strange(take())) is not None:
            if time.monotonic() > deadline:
                raise Drift(f"not in its clean state {seconds:.0f} s after its reset: {strange}")
            time.sleep(_LOOK_SECONDS)

    def strange(self, fingerprint: Fingerprint) -> str | None:
        """The first probe that finds what no clean VM had, and what that is; None when there is nothing."""
        with self._guard:
            for probe, words in fingerprint.items():
                for word in sorted(set(words) - self._known.get(probe, set())):
                    return f"{probe}: {word}, which a clean one does not have"
        return None

    def _add(self, fingerprint: Fingerprint) -> dict[str, list[str]]:
        with self._guard:
            for probe, words in fingerprint.items():
                self._known.setdefault(probe, set()).update(words)
        return {probe: sorted(words) for probe, words in fingerprint.items()}
