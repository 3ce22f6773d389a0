"""Whether a VM that was reset is like one that was just booted: the contamination canary.

A fingerprint is what a provider says of a VM: words for each of several probes. A desktop that has just come up may still be
settling, so differences count only when they are still there at a deadline.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

Fingerprint = Mapping[str, Sequence[str]]

SETTLE_SECONDS = 10.0
"""How long a VM may take after its check until it looks like its clean state."""
_STEADY_LOOKS = 3
"""A fingerprint that is the same so many times in a row has settled."""
_STEADY_SECONDS = 0.3
_LOOK_SECONDS = 0.05


class Drift(RuntimeError):
    """A VM is not in its clean state; the sentence names the first probe that says so, and the first difference."""


def settled(take: Callable[[], Fingerprint], seconds: float = SETTLE_SECONDS) -> Fingerprint:
    """The fingerprint of a clean VM, once it does not change any more.

    Raises:
        Drift: It still changes at the deadline.
    """
    deadline = time.monotonic() + seconds
    last, same = take(), 1
    while same < _STEADY_LOOKS:
        time.sleep(_STEADY_SECONDS)
        now = take()
        same = same + 1 if now == last else 1
        if time.monotonic() > deadline and same < _STEADY_LOOKS:
            raise Drift(f"a freshly booted VM does not settle within {seconds:.0f} s: {difference(last, now)}")
        last = now
    return last


def expect(clean: Fingerprint, take: Callable[[], Fingerprint], seconds: float = SETTLE_SECONDS) -> None:
    """Returns as soon as a VM is like its clean state.

    Raises:
        Drift: It still is not at the deadline.
    """
    deadline = time.monotonic() + seconds
    while (found := difference(clean, take())) is not None:
        if time.monotonic() > deadline:
            raise Drift(f"not in its clean state {seconds:.0f} s after the reset: {found}")
        time.sleep(_LOOK_SECONDS)


def difference(clean: Fingerprint, now: Fingerprint) -> str | None:
    """The first difference, in words; None when there is none."""
    for probe in clean:
        before, after = Counter(clean[probe]), Counter(now.get(probe, ()))
        for word in sorted(before | after):
            if before[word] == 0:
                return f"{probe}: {word} was not there"
            if after[word] == 0:
                return f"{probe}: {word} is missing"
            if after[word] != before[word]:
                return f"{probe}: {word} is there {after[word]} times, not {before[word]}"
    return None
