"""The contamination canary: checks that a VM that was reset looks like a freshly booted one.

A fingerprint is what a provider reports about a VM: words for each of several probes, such as the names of its
processes. Words that a freshly booted VM of the host had are clean; any other word is contamination. Missing words are
not looked for here: the provider's check does that. A desktop that has just started may still be settling, so an
unknown word counts only when it is still there at a deadline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

Fingerprint = Mapping[str, Sequence[str]]

SETTLE_SECONDS = 5.0
"""How long a VM may take after its check until it looks clean, or stops changing."""
_STEADY_LOOKS = 3
"""A fingerprint that is the same this many times in a row has settled."""
_STEADY_SECONDS = 0.25
_LOOK_SECONDS = 0.05


class Drift(RuntimeError):
    """A VM is not in its clean state; the message names the first probe that shows it, and what it found."""


def settled(take: Callable[[], Fingerprint], seconds: float = SETTLE_SECONDS) -> Fingerprint:
    """Returns a fingerprint that no longer changes, or the last one: a VM that never settles is not an error.

    Args:
        take: Takes a fingerprint.
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
    """What clean VMs of one kind look like, learned from freshly booted ones."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}
        self._lock = threading.Lock()

    def learn(self, take: Callable[[], Fingerprint], seconds: float = SETTLE_SECONDS) -> None:
        """Learns from a freshly booted VM: everything it shows until it has settled counts as clean.

        Args:
            take: Takes its fingerprint.
            seconds: How long it may take to settle; a VM that never settles is not an error.
        """
        settled(lambda: self._add(take()), seconds)

    def expect(self, take: Callable[[], Fingerprint], seconds: float = SETTLE_SECONDS) -> None:
        """Returns as soon as a VM that was reset looks clean.

        Raises:
            Drift: It still does not look clean at the deadline.
        """
        deadline = time.monotonic() + seconds
        while (strange := self.strange(take())) is not None:
            if time.monotonic() > deadline:
                raise Drift(f"not in its clean state {seconds:.0f} s after its reset: {strange}")
            time.sleep(_LOOK_SECONDS)

    def strange(self, fingerprint: Fingerprint) -> str | None:
        """Returns the first probe with a word that no clean VM had, and that word; None when all words are known."""
        with self._lock:
            for probe, words in fingerprint.items():
                for word in sorted(set(words) - self._known.get(probe, set())):
                    return f"{probe}: {word}, which a clean one does not have"
        return None

    def _add(self, fingerprint: Fingerprint) -> dict[str, list[str]]:
        with self._lock:
            for probe, words in fingerprint.items():
                self._known.setdefault(probe, set()).update(words)
        return {probe: sorted(words) for probe, words in fingerprint.items()}
