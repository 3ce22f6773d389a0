"""What counts as contamination after a reset, and what is only a desktop that settles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from vm_pool import canary
from vm_pool.canary import CleanState, Drift, Fingerprint, settled

CLEAN = {"windows": (), "processes": ("openbox", "panel"), "files": ("/etc/hosts",)}


def looks(*fingerprints: Fingerprint) -> Callable[[], Fingerprint]:
    """What each look sees; the last one for ever."""
    left: Iterator[Fingerprint] = iter(fingerprints[:-1])
    return lambda: next(left, fingerprints[-1])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "_STEADY_SECONDS", 0.001)
    monkeypatch.setattr(canary, "_LOOK_SECONDS", 0.001)


@pytest.fixture
def clean() -> CleanState:
    state = CleanState()
    state.learn(looks(CLEAN))
    return state


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, None),
        ({"processes": ("openbox",)}, None),
        ({"processes": ("openbox", "panel", "panel")}, None),
        ({"processes": ("openbox", "miner", "panel")}, "processes: miner, which a clean one does not have"),
        ({"files": ("/b", "/a")}, "files: /a, which a clean one does not have"),
        ({"windows": ("Bank",), "processes": ("miner",)}, "windows: Bank, which a clean one does not have"),
        ({"colour": ("red",)}, "colour: red, which a clean one does not have"),
    ],
)
def test_the_first_strange_word_is_named(
    clean: CleanState, change: dict[str, Sequence[str]], sentence: str | None
) -> None:
    assert clean.strange({**CLEAN, **change}) == sentence


def test_a_vm_may_take_a_moment_until_it_looks_clean(clean: CleanState) -> None:
    passing = {**CLEAN, "processes": ("setup",)}
    clean.expect(looks(passing, passing, CLEAN), 10)
    with pytest.raises(Drift, match=r"not in its clean state 0 s after its reset: processes: setup"):
        clean.expect(looks(passing), 0.01)


def test_everything_that_a_fresh_vm_passes_through_is_clean() -> None:
    state = CleanState()
    state.learn(looks({"processes": ["login"]}, {"processes": ["login", "shell"]}, {"processes": ["shell"]}))
    assert state.strange({"processes": ("login", "shell")}) is None


class Clock:
    """Moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += 0.25


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(canary, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("seen", "looked"), [("a", 3), ("aaab", 3), ("ab", 4), ("aab", 5), ("abab", 6), ("abcd" * 10, 21)]
)
def test_three_looks_in_a_row_or_the_deadline_end_the_wait(clock: Clock, seen: str, looked: int) -> None:
    fingerprints = [{"processes": [word]} for word in seen]
    looks_taken: list[Fingerprint] = []
    look = looks(*fingerprints)

    def take() -> Fingerprint:
        looks_taken.append(look())
        return looks_taken[-1]

    assert settled(take) == looks_taken[-1]
    assert len(looks_taken) == looked  # the default is five seconds, of a quarter each here
    assert clock.slept == [canary._STEADY_SECONDS] * (looked - 1)


def test_learning_looks_as_long_as_told(clock: Clock) -> None:
    restless = ({"processes": [str(number)]} for number in range(1_000_000))
    state = CleanState()
    state.learn(lambda: next(restless), 0.75)
    assert clock.now == 100.75
    state.learn(lambda: next(restless))
    assert clock.now == 105.75
    assert state.strange({"processes": [str(number) for number in range(25)]}) is None
    assert state.strange({"processes": ["25"]}) == "processes: 25, which a clean one does not have"


@pytest.mark.parametrize("given", [{}, {"seconds": 6.0}])
def test_a_strange_vm_is_looked_at_until_the_deadline(clean: CleanState, clock: Clock, given: dict[str, float]) -> None:
    seconds = given.get("seconds", 5.0)
    seen: list[float] = []

    def take() -> Fingerprint:
        seen.append(clock.now)
        return {**CLEAN, "processes": ("miner",)}

    with pytest.raises(Drift) as drift:
        clean.expect(take, **given)

    assert seen[-1] == 100.25 + seconds, "at the deadline itself there is one look more"
    assert clock.slept == [canary._LOOK_SECONDS] * (len(seen) - 1)
    assert str(drift.value) == (
        f"not in its clean state {seconds:.0f} s after its reset: processes: miner, which a clean one does not have"
    )


def test_a_clean_vm_is_looked_at_once(clean: CleanState, clock: Clock) -> None:
    clean.expect(looks(CLEAN, {"processes": ("miner",)}), 0)
    assert clock.slept == []


def test_it_has_settled_when_several_looks_agree() -> None:
    last = {"processes": ["c"]}
    assert settled(looks({"processes": ["a"]}, {"processes": ["b"]}, last), 10) == last
    restless = ({"processes": [str(number)]} for number in range(1_000_000))
    assert settled(lambda: next(restless), 0.01)
