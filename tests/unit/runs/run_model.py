"""What the run store's Lua scripts do with a run, as plain Python on small values: one function for each script, and nothing else.

Time is not there. Whoever plays the clock marks a submitter, a rollout's holder or a finaliser as silent; the next script that
looks acts on it. Rollouts are numbers, and a verdict is a word.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

OVER = ("done", "cancelled")


class Run(NamedTuple):
    """What the server keeps of one run, and loses some of when it is killed."""

    state: str = ""
    """Empty: the server does not know the run."""
    before: str = ""
    """The state it was finalised from."""
    submission: str = ""
    """Token of the submission that it belongs to."""
    submitter_silent: bool = False
    pending: frozenset[int] = frozenset()
    holders: tuple[tuple[int, str], ...] = ()
    """(Rollout, token of the execution)."""
    silent: frozenset[int] = frozenset()
    """Rollouts whose holder has said nothing for too long."""
    exhausted: frozenset[int] = frozenset()
    """Rollouts whose holder was told that their attempts are used up."""
    attempts: tuple[tuple[int, int], ...] = ()
    """(Rollout, how many were begun); none for a rollout without."""
    results: tuple[tuple[int, str, str], ...] = ()
    """(Rollout, verdict, token of the execution that committed it)."""
    chord_spent: bool = False
    finalizer: str = ""
    finalizer_silent: bool = False
    times_finalised: int = 0

    @property
    def committed(self) -> dict[int, str]:
        return {rollout: verdict for rollout, verdict, _ in self.results}


@dataclass
class RunScripts:
    """The scripts, for one run. They change `run` in place."""

    run: Run
    total: int
    max_attempts: int
    flaws: frozenset[str] = field(default_factory=frozenset)
    """Mistakes on purpose, for showing that they are found."""

    # Submitting

    def create(self, token: str) -> bool:
        if self.run.state:
            return self.run.submission == token
        self._set(state="submitting", submission=token)
        return True

    def add_pending(self, token: str, rollouts: Iterable[int]) -> str:
        state = self._add(token)
        if state == "submitting":
            missing = frozenset(rollouts) - self.run.committed.keys()
            self._set(pending=self.run.pending | missing)
        return state

    def add_results(self, token: str, results: Iterable[tuple[int, str]]) -> str:
        state = self._add(token)
        if state == "submitting":
            known = self.run.committed
            new = [(rollout, verdict, "") for rollout, verdict in results if rollout not in known]
            pending = self.run.pending - {rollout for rollout, _, _ in new}
            self._set(results=tuple(sorted((*self.run.results, *new))), pending=pending)
        return state

    def add_beat(self, token: str) -> str:
        return self._add(token)

    def _add(self, token: str) -> str:
        if not self.run.state:
            return "unknown"
        if self.run.submission != token:
            return "superseded"
        if self.run.state == "half_submitted":
            self._set(state="submitting")
        if self.run.state == "submitting":
            self._set(submitter_silent=False)
        return self.run.state

    def submitted(self, token: str, what: str) -> str:
        if not self.run.state:
            return "unknown"
        if self.run.submission != token:
            return "superseded"
        if self.run.state not in ("submitting", "half_submitted"):
            return self.run.state
        if not self._all_stored:
            return "incomplete"
        self._set(state="running" if what == "sent" else "submitting")
        return self.run.state

    def adopt(self) -> str:
        if self.run.state in ("submitting", "half_submitted") and self.run.submitter_silent:
            if self._all_stored or "adopts a part" in self.flaws:
                self._set(state="running", chord_spent=True)
            else:
                self._set(state="half_submitted")
        return self.run.state

    def forget(self, *states: str) -> bool:
        if self.run.state and self.run.state not in states:
            return False
        self.run = Run()
        return True

    def change_state(self, new: str, *states: str) -> str:
        if self.run.state in states:
            self._set(state=new)
        return self.run.state

    # Rolling out

    def claim(self, rollout: int, token: str, after: int = 0, dead: str = "") -> tuple[str, int]:
        """(Status, attempt)."""
        run = self.run
        if not run.state:
            return ("unknown", 0)
        if rollout in run.committed:
            return ("committed", 0)
        if rollout not in run.pending:
            return ("unknown", 0)
        if run.state == "half_submitted":
            return ("half_submitted", 0)
        attempts, holder = dict(run.attempts).get(rollout, 0), dict(run.holders).get(rollout)
        mine = holder == token
        if holder is not None and not mine:
            if after:
                return ("superseded", attempts)
            if rollout not in run.silent and holder != dead and "admits anybody" not in self.flaws:
                return ("busy", attempts)
        elif holder is None and after:
            return ("superseded", attempts)
        if run.state == "draining" and not mine:
            return ("draining", attempts)
        status = "claimed"
        if run.state in ("cancelling", "cancelled"):
            status = "cancelled"
        elif (mine and rollout in run.exhausted) or not (mine and attempts > after):
            if attempts >= self.max_attempts:
                status = "exhausted"
            else:
                attempts += 1
        self._set(
            attempts=_with(run.attempts, rollout, attempts if attempts or rollout in dict(run.attempts) else None),
            holders=_with(run.holders, rollout, token),
            silent=run.silent - {rollout},
            exhausted=run.exhausted | {rollout} if status == "exhausted" else run.exhausted - {rollout},
        )
        return (status, attempts)

    def beat(self, rollout: int, token: str) -> str:
        if not self.run.state:
            return "unknown"
        if dict(self.run.holders).get(rollout) != token:
            return "superseded"
        self._set(silent=self.run.silent - {rollout})
        return self.run.state

    def uncount(self, rollout: int, token: str, attempt: int) -> bool:
        if dict(self.run.holders).get(rollout) != token:
            return False
        self._set(attempts=_with(self.run.attempts, rollout, max(attempt - 1, 0)))
        return True

    def hand_back(self, rollout: int, token: str) -> bool:
        if dict(self.run.holders).get(rollout) != token:
            return False
        left = dict(self.run.attempts).get(rollout, 0) - 1
        self._set(
            holders=_with(self.run.holders, rollout, None),
            silent=self.run.silent - {rollout},
            attempts=_with(self.run.attempts, rollout, max(left, 0)),
        )
        return True

    def commit(self, rollout: int, token: str, verdict: str) -> tuple[str, int, bool]:
        """(Outcome, rollouts left, whether the caller must ask for the run to be finalised)."""
        run = self.run
        if not run.state:
            return ("unknown", 0, False)
        left = self.total - len(run.results)
        earlier = [by for number, _, by in run.results if number == rollout]
        if earlier and earlier != [token] and "commits over others" not in self.flaws:
            return ("committed", left, False)
        if not earlier:
            if dict(run.holders).get(rollout) != token:
                return ("superseded", left, False)
            self._settle(rollout, verdict, token)
            left -= 1
        return ("ok", left, left == 0 and run.chord_spent)

    def cancel(self, verdict: str = "cancelled") -> tuple[str, int, int, list[int]]:
        """(State found, rollouts cancelled here, rollouts left, those that were begun and that nobody holds)."""
        found = self.run.state
        if not found:
            return ("unknown", 0, 0, [])
        if found in (*OVER, "finalizing"):
            return (found, 0, 0, [])
        self._set(state="cancelling", chord_spent=True)
        free = sorted(self.find_lost(frozenset()))
        attempts = dict(self.run.attempts)
        begun = [rollout for rollout in free if rollout in attempts and "cancels what was begun" not in self.flaws]
        for rollout in free:
            if rollout not in begun:
                self._settle(rollout, verdict, "")
        if not self.run.pending and len(self.run.results) < self.total:
            self._set(state="cancelled")
        return (found, len(free) - len(begun), len(self.run.pending), begun)

    def find_lost(self, noted: frozenset[int]) -> frozenset[int]:
        holders = dict(self.run.holders)
        return frozenset(r for r in self.run.pending - noted if r not in holders or r in self.run.silent)

    # Finalising

    def begin_finalize(self, token: str) -> str:
        run = self.run
        if not run.state:
            return "unknown"
        if run.state in OVER:
            return "over"
        if len(run.results) != self.total and not ("finalises a part" in self.flaws and not run.pending):
            self._set(chord_spent=True)
            return "incomplete"
        if run.state == "finalizing":
            if run.finalizer != token and not run.finalizer_silent:
                return "busy"
        else:
            self._set(before=run.state)
        self._set(state="finalizing", finalizer=token, finalizer_silent=False)
        return "go"

    def beat_finalize(self, token: str) -> str:
        if not self.run.state:
            return "unknown"
        if self.run.state != "finalizing" or self.run.finalizer != token:
            return "superseded"
        self._set(finalizer_silent=False)
        return "finalizing"

    def end_finalize(self, token: str) -> str:
        if self.run.finalizer != token:
            return "superseded"
        if self.run.state in OVER:
            return self.run.state
        if self.run.state != "finalizing":
            return "superseded"
        final = "cancelled" if self.run.before == "cancelling" else "done"
        self._set(state=final, times_finalised=self.run.times_finalised + 1)
        return final

    # Moves that scripts share

    @property
    def _all_stored(self) -> bool:
        return len(self.run.pending) + len(self.run.results) == self.total

    def _set(self, **changes: Any) -> None:
        run = self.run._replace(**changes)
        self.run = run._replace(exhausted=run.exhausted.intersection(dict(run.holders)))

    def _settle(self, rollout: int, verdict: str, token: str) -> None:
        self._set(
            results=tuple(sorted((*self.run.results, (rollout, verdict, token)))),
            pending=self.run.pending - {rollout},
            holders=_with(self.run.holders, rollout, None),
            silent=self.run.silent - {rollout},
            attempts=_with(self.run.attempts, rollout, None),
        )


def _with(pairs: tuple[tuple[int, Any], ...], key: int, value: Any) -> tuple[tuple[int, Any], ...]:
    """The pairs with one set, or without it where the value is None."""
    kept = [(k, v) for k, v in pairs if k != key]
    return tuple(sorted(kept if value is None else [*kept, (key, value)]))
