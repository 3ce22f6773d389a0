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


def test_it_has_settled_when_several_looks_agree() -> None:
    last = {"processes": ["c"]}
    assert settled(looks({"processes": ["a"]}, {"processes": ["b"]}, last), 10) == last
    restless = ({"processes": [str(number)]} for number in range(1_000_000))
    assert settled(lambda: next(restless), 0.01)
