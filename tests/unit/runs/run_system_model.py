"""A submitter, workers, finalisers, a folder and a broker around the model of the run store's scripts: every order of what they do.

Within a budget of faults every state is visited that can be reached. In each it is judged that the store says what the folder says,
that a verdict never changes, that a rollout is lost only where no attempt left a result, and that a report has every rollout. And
from each, without more faults, the run must be able to end.

Run as: python -m tests.unit.runs.run_system_model [rollouts=1] [workers=2] [attempts=2] [deaths=1] [losses=1] [...]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from tests.state_search import Violation, explore
from tests.unit.runs.run_model import OVER, Run, RunScripts

GOOD, INFRASTRUCTURE, LOST, CANCELLED = "good", "infrastructure", "lost", "cancelled"
FINALISE = -1
"""The message that asks for the run to be finalised, among those that name a rollout."""
AT_MOST = 2
"""Messages of one kind that wait at a time; more of them would change nothing."""


class Budget(NamedTuple):
    """How often each fault may happen on one way through the states."""

    deaths: int = 0
    """A worker's child is killed."""
    pauses: int = 0
    """A live process is so slow that it counts as dead."""
    losses: int = 0
    """A call is carried out and its reply lost."""
    failures: int = 0
    """An attempt is lost to the infrastructure."""
    doubles: int = 0
    """A message comes twice."""
    lost_messages: int = 0
    """A message is gone."""
    stops: int = 0
    """A worker is told to stop while a rollout runs, and hands it back."""
    submitter_deaths: int = 0
    crashes: int = 0
    """The server is killed, and comes back without some of its last writes."""
    cancels: int = 0
    """Somebody cancels the run."""


class Attempt(NamedTuple):
    """One attempt's folder."""

    number: int
    ended: str = ""
    """What its result says; empty when it has none."""


class Files(NamedTuple):
    """The folder of one rollout."""

    settled: str = ""
    attempts: tuple[Attempt, ...] = ()

    def finished(self) -> str:
        return self.settled or (GOOD if any(attempt.ended == GOOD for attempt in self.attempts) else "")


class Worker(NamedTuple):
    """A worker's child with a message in its hands."""

    phase: str = "idle"
    """idle, asked, claimed, acting, ended, again, settling, settled, done; of finalising: begin, judging, written."""
    message: int = 0
    token: str = ""
    status: str = ""
    """What the claim was told."""
    attempt: int = 0
    """As the run store counts."""
    folder: int = 0
    """As the folder counts."""
    verdict: str = ""
    silent: bool = False
    """Its claim counts as dead, though it lives."""
    known_dead: str = ""
    """Token of the holder that is known to be dead."""


class Submitter(NamedTuple):
    """Whoever submits the run, or resumes it."""

    phase: str = "create"
    """create, results, pending, stored, send, sent, again, done, dead."""
    token: str = "s1"
    sent: int = 0
    kept: tuple[tuple[int, str], ...] = ()
    """Verdicts that the folder had when the run was resumed."""


class State(NamedTuple):
    """Everything at one moment."""

    run: Run
    saved: tuple[Run, tuple[int, ...], int] | None
    """What a killed server comes back with: the run, messages and the chord."""
    submitter: Submitter
    workers: tuple[Worker, ...]
    messages: tuple[int, ...] = ()
    chord: int = 0
    """Rollouts that have returned; -1 once it has fired, or when it was lost."""
    folder: tuple[Files, ...] = ()
    report: tuple[tuple[int, str], ...] | None = None
    slow: bool = False
    """Somebody has acted, or may act, who counted as dead: then the first who settles decides."""
    budget: Budget = Budget()


@dataclass
class Step:
    """One step under way: a state taken apart, so that it can be changed."""

    scripts: RunScripts
    state: State

    def worker(self, number: int, **changes: object) -> None:
        workers = list(self.state.workers)
        workers[number] = workers[number]._replace(**changes)
        self.state = self.state._replace(workers=tuple(workers))

    def idle(self, number: int) -> None:
        workers = list(self.state.workers)
        workers[number] = Worker()
        self.state = self.state._replace(workers=tuple(workers))

    def submitter(self, **changes: object) -> None:
        self.state = self.state._replace(submitter=self.state.submitter._replace(**changes))

    def files(self, rollout: int, **changes: object) -> None:
        folder = list(self.state.folder)
        folder[rollout] = folder[rollout]._replace(**changes)
        self.state = self.state._replace(folder=tuple(folder))

    def send(self, message: int) -> None:
        if self.state.messages.count(message) < AT_MOST:
            self.state = self.state._replace(messages=tuple(sorted((*self.state.messages, message))))

    def pay(self, what: str) -> Step:
        left = getattr(self.state.budget, what) - 1
        slow = self.state.slow or what == "pauses"
        self.state = self.state._replace(slow=slow, budget=self.state.budget._replace(**{what: left}))
        return self

    def done(self) -> State:
        """The state after the step, judged."""
        state = self.state._replace(run=self.scripts.run)
        judge(state, self.scripts.total)
        return state


def judge(state: State, total: int) -> None:
    """Says what must never be."""
    for rollout, verdict in state.run.committed.items():
        files = state.folder[rollout]
        if files.finished() != verdict and not (verdict == CANCELLED and not files.finished()):
            raise Violation(f"the store says {verdict} of rollout {rollout}, the folder {files}")
    for rollout, files in enumerate(state.folder):
        left = any(attempt.ended == GOOD for attempt in files.attempts)
        if files.settled == LOST and left and not state.slow:
            raise Violation(f"rollout {rollout} is lost, though an attempt left a result")
        if files.settled == INFRASTRUCTURE and left and not state.slow:
            raise Violation(f"rollout {rollout} counts as lost to the infrastructure, though an attempt left a result")
    if state.run.state in ("done", "finalizing") and len(state.run.results) != total:
        raise Violation(f"the run is {state.run.state} with {len(state.run.results)} results of {total}")
    if state.report is not None and len(state.report) != total:
        raise Violation(f"a report has {len(state.report)} rollouts of {total}")
    if state.run.state == "done" and dict(state.report or ()) != state.run.committed:
        raise Violation(f"the report says {state.report}, the store {state.run.results}")
    if state.run.times_finalised > 1:
        raise Violation("the run was finalised twice")


class RunSystem:
    """All that can happen.

    Args:
        rollouts: How many the run has.
        workers: Children that work on them.
        attempts: How often a rollout may be begun.
        flaws: Mistakes on purpose, for showing that they are found.
    """

    def __init__(self, rollouts: int, workers: int = 2, attempts: int = 2, flaws: frozenset[str] = frozenset()) -> None:
        self.rollouts = rollouts
        self.workers = workers
        self.attempts = attempts
        self.flaws = flaws

    def start(self, budget: Budget) -> State:
        return State(
            Run(), None, Submitter(), (Worker(),) * self.workers, folder=(Files(),) * self.rollouts, budget=budget
        )

    def step(self, state: State) -> Step:
        return Step(RunScripts(state.run, self.rollouts, self.attempts, self.flaws), state)

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        """What can happen next, in words, and the state after it."""
        yield from self._submit(state)
        for number, worker in enumerate(state.workers):
            yield from self._work(state, number, worker)
        yield from self._look_after(state)
        yield from self._faults(state)

    def settled(self, state: State) -> bool:
        """Whether everything is over: nobody at work, no message left, and a report of the whole run."""
        idle = all(worker.phase == "idle" for worker in state.workers) and not state.messages
        return idle and state.run.state in OVER and state.submitter.phase in ("done", "dead")

    def helps(self, what: str, before: State, after: State) -> bool:  # noqa: ARG002 (part of the contract)
        """Faults are not counted on."""
        return before.budget == after.budget

    # -- submitting -------------------------------------------------------------------------------------------------

    def _submit(self, state: State) -> Iterator[tuple[str, State]]:
        me = state.submitter
        if me.phase in ("done", "dead"):
            yield from self._resume(state)
            return
        yield f"the submitter goes on ({me.phase})", self._submitter_step(state, heard=True)
        if state.budget.losses and me.phase != "send":
            step = self.step(self._submitter_step(state, heard=False))
            yield f"the submitter hears no reply ({me.phase})", step.pay("losses").done()
        if state.budget.submitter_deaths:
            step = self.step(state).pay("submitter_deaths")
            step.submitter(phase="dead")
            yield "the submitter dies", step.done()

    def _submitter_step(self, state: State, *, heard: bool) -> State:
        step, me = self.step(state), state.submitter
        scripts = step.scripts
        todo = [number for number in range(self.rollouts) if number not in dict(me.kept)]
        after = me
        if me.phase == "create":
            after = me._replace(phase="results" if scripts.create(me.token) else "done")
        elif me.phase == "results":
            after = me._replace(phase="pending" if scripts.add_results(me.token, me.kept) == "submitting" else "done")
        elif me.phase in ("pending", "again"):
            following = "stored" if me.phase == "pending" else "spend"
            after = me._replace(phase=following if scripts.add_pending(me.token, todo) == "submitting" else "done")
        elif me.phase == "stored":
            said = scripts.submitted(me.token, "stored")
            following = {"incomplete": "results", "unknown": "done", "superseded": "done"}.get(said, "send")
            after = me._replace(phase=following)
        elif me.phase == "send":
            left = [number for number in todo if number >= me.sent] if me.sent < self.rollouts else []
            if left:
                step.send(left[0])
                after = me._replace(sent=left[0] + 1)
            else:
                step.state = step.state._replace(chord=self.rollouts - len(todo) if todo else -1)
                after = me._replace(phase="sent")
        elif me.phase == "sent":
            said = scripts.submitted(me.token, "sent")
            if said == "running" and not todo:
                step.send(FINALISE)
            after = me._replace(phase="again" if said == "incomplete" else "done")
        elif me.phase == "spend":
            if scripts.run.state:
                scripts.run = scripts.run._replace(chord_spent=True)
            after = me._replace(phase="sent")
        if heard:
            step.submitter(**after._asdict())
        return step.done()

    def _resume(self, state: State) -> Iterator[tuple[str, State]]:
        """Somebody says --resume where the server forgot the run, or it was submitted by half."""
        if state.run.state not in ("", "half_submitted") or any(worker.phase != "idle" for worker in state.workers):
            return
        step = self.step(state)
        step.scripts.forget("half_submitted")
        for rollout, files in enumerate(state.folder):
            if files.settled in (LOST, INFRASTRUCTURE, CANCELLED):
                step.files(rollout, settled="", attempts=())
        step.state = step.state._replace(chord=0, report=None)
        kept = tuple((number, files.finished()) for number, files in enumerate(step.state.folder) if files.finished())
        token = "s2" if state.submitter.token == "s1" else "s1"
        step.submitter(phase="create", token=token, sent=0, kept=kept)
        yield "somebody resumes", step.done()

    # -- working ----------------------------------------------------------------------------------------------------

    def _work(self, state: State, number: int, me: Worker) -> Iterator[tuple[str, State]]:
        name = f"worker {number}"
        if me.phase == "idle":
            for message in sorted(set(state.messages)):
                step = self.step(state)
                messages = list(state.messages)
                messages.remove(message)
                step.state = step.state._replace(messages=tuple(messages))
                phase = "begin" if message == FINALISE else "asked"
                step.worker(number, phase=phase, message=message, token=_unused(state))
                yield f"{name} takes the message {message}", step.done()
            return
        if me.phase in ("begin", "judging", "written"):
            yield from self._finalise(state, number, me, name)
        elif me.phase == "asked":
            yield from self._claim(state, number, me, name)
        else:
            yield from self._roll_out(state, number, me, name)
        yield from self._worker_faults(state, number, me, name)

    def _claim(self, state: State, number: int, me: Worker, name: str) -> Iterator[tuple[str, State]]:
        step = self.step(state)
        status, attempt = step.scripts.claim(me.message, me.token, dead=me.known_dead)
        if state.budget.losses:
            yield f"{name} hears no reply to its claim", self._unheard(step)
        if status == "busy":
            holder = dict(state.run.holders)[me.message]
            if all(worker.token != holder for worker in state.workers):
                yield f"{name} finds the holder dead", self._changed(state, number, known_dead=holder)
            yield f"{name} leaves it to the holder", self._acknowledge(state, number)
        elif status in ("claimed", "exhausted", "cancelled"):
            step.worker(number, phase="claimed", status=status, attempt=attempt)
            yield f"{name} claims rollout {me.message} ({status})", step.done()
        else:
            yield f"{name} has nothing to do ({status})", self._acknowledge(state, number)

    def _roll_out(self, state: State, number: int, me: Worker, name: str) -> Iterator[tuple[str, State]]:
        files = state.folder[me.message]
        if state.budget.stops and me.phase in {"acting", "settling", "linking", "settled"}:
            yield f"{name} is stopped and hands back", self._hand_back(state, number, me)
        if me.phase == "claimed":
            finished = "" if "looks into no folder" in self.flaws else files.finished()
            if finished:
                yield f"{name} finds a result", self._changed(state, number, phase="settling", verdict=finished)
            elif me.status != "claimed":
                verdict = {"exhausted": LOST, "cancelled": CANCELLED}[me.status]
                yield f"{name} attempts nothing", self._changed(state, number, phase="settling", verdict=verdict)
            else:
                step, folder = self.step(state), me.attempt
                while any(attempt.number == folder for attempt in files.attempts):
                    folder += 1
                step.files(me.message, attempts=(*files.attempts, Attempt(folder)))
                step.worker(number, phase="acting", folder=folder)
                yield f"{name} begins attempt {folder}", step.done()
        elif me.phase == "acting":
            yield f"{name} succeeds", self._changed(state, number, phase="ended", verdict=GOOD)
            if state.budget.failures:
                step = self.step(state).pay("failures")
                step.worker(number, phase="ended", verdict=INFRASTRUCTURE)
                yield f"{name} fails", step.done()
        elif me.phase == "ended":
            step = self.step(state)
            attempts = [a._replace(ended=me.verdict) if a.number == me.folder else a for a in files.attempts]
            step.files(me.message, attempts=tuple(attempts))
            more = me.verdict == INFRASTRUCTURE and me.attempt < self.attempts
            step.worker(number, phase="again" if more else "settling")
            yield f"{name} writes how its attempt ended", step.done()
        elif me.phase == "again":
            step = self.step(state)
            status, attempt = step.scripts.claim(me.message, me.token, after=me.attempt)
            if state.budget.losses:
                yield f"{name} hears no reply to its claim of another attempt", self._unheard(step)
            if status == "claimed":
                step.worker(number, phase="claimed", status=status, attempt=attempt, verdict="", silent=False)
            else:
                step.worker(number, phase="settling")
            yield f"{name} asks for another attempt ({status})", step.done()
        elif me.phase == "settling":
            step = self.step(state)
            doubtful = me.verdict != GOOD or me.silent
            if doubtful:
                if step.scripts.beat(me.message, me.token) in ("superseded", "unknown"):
                    yield f"{name} has lost its claim", self._acknowledge(state, number)
                    return
                step.worker(number, phase="linking", silent=False)
                yield f"{name} makes sure of its claim", step.done()
                return
            yield f"{name} settles", self._link(step, number, me, files)
        elif me.phase == "linking":
            yield f"{name} settles", self._link(self.step(state), number, me, files)
        elif me.phase == "settled":
            step = self.step(state)
            verdict = me.verdict
            outcome, _, finalise = step.scripts.commit(me.message, me.token, verdict)
            if state.budget.losses:
                yield f"{name} hears no reply to its commit", self._unheard(step)
            if outcome == "ok" and finalise:
                step.send(FINALISE)
            step.worker(number, phase="done")
            yield f"{name} commits {verdict} ({outcome})", step.done()
        elif me.phase == "done":
            yield f"{name} acknowledges", self._acknowledge(state, number)

    def _link(self, step: Step, number: int, me: Worker, files: Files) -> State:
        settled = files.settled or me.verdict
        if "writes over" in self.flaws:
            settled = me.verdict
        step.files(me.message, settled=settled)
        step.worker(number, phase="settled", verdict=settled)
        return step.done()

    def _acknowledge(self, state: State, number: int) -> State:
        """The task returns: its message is gone, and the chord counts it."""
        step, me = self.step(state), state.workers[number]
        step.idle(number)
        if me.message != FINALISE and state.chord >= 0:
            returned = state.chord + 1
            step.state = step.state._replace(chord=-1 if returned >= self.rollouts else returned)
            if returned >= self.rollouts:
                step.send(FINALISE)
        return step.done()

    def _hand_back(self, state: State, number: int, me: Worker) -> State:
        step = self.step(state).pay("stops")
        step.scripts.hand_back(me.message, me.token)
        step.send(me.message)
        step.idle(number)
        return step.done()

    def _finalise(self, state: State, number: int, me: Worker, name: str) -> Iterator[tuple[str, State]]:
        step = self.step(state)
        if me.phase == "begin":
            answer = step.scripts.begin_finalize(me.token)
            if state.budget.losses:
                yield f"{name} hears no reply as it begins to finalise", self._unheard(step)
            if answer == "go":
                step.worker(number, phase="judging")
            else:
                step.idle(number)
            yield f"{name} begins to finalise ({answer})", step.done()
        elif me.phase == "judging":
            if step.scripts.beat_finalize(me.token) == "finalizing":
                step.state = step.state._replace(report=tuple(sorted(state.run.committed.items())))
                step.worker(number, phase="written", silent=False)
            else:
                step.idle(number)
            yield f"{name} writes the report", step.done()
        else:
            answer = step.scripts.end_finalize(me.token)
            if state.budget.losses:
                yield f"{name} hears no reply as it ends the run", self._unheard(step)
            step.idle(number)
            yield f"{name} ends the run ({answer})", step.done()

    def _changed(self, state: State, number: int, **changes: object) -> State:
        step = self.step(state)
        step.worker(number, **changes)
        return step.done()

    def _unheard(self, step: Step) -> State:
        """The call is carried out, and its caller knows nothing of it: it will say it again."""
        return replace(step).pay("losses").done()

    # -- what goes on without them ----------------------------------------------------------------------------------

    def _look_after(self, state: State) -> Iterator[tuple[str, State]]:
        """What a look for lost work does, one thing at a time, and time."""
        step = self.step(state)
        before = state.run.state
        if before in ("submitting", "half_submitted") and step.scripts.adopt() != before:
            yield f"the run is adopted ({step.scripts.run.state})", step.done()
        finalising = FINALISE in state.messages or any(worker.message == FINALISE for worker in state.workers)
        run = state.run
        if run.state not in ("", "submitting", "half_submitted", *OVER):
            complete = len(run.results) == self.rollouts
            if complete and not finalising and (run.state != "finalizing" or run.finalizer_silent):
                step = self.step(state)
                step.send(FINALISE)
                yield "finalising is asked for again", step.done()
        if run.state == "cancelling":
            step = self.step(state)
            begun = step.scripts.cancel(CANCELLED)[-1]
            if step.scripts.run != run:
                yield "the rest is cancelled", step.done()
            idle = [number for number, worker in enumerate(state.workers) if worker.phase == "idle"]
            for rollout in begun if idle else ():
                taken = {"phase": "asked", "message": rollout, "token": _unused(state)}
                yield f"rollout {rollout}'s end is looked for", self._changed(state, idle[0], **taken)
        if run.state == "running":
            noted = frozenset(state.messages) | {worker.message for worker in state.workers if worker.phase != "idle"}
            for rollout in sorted(self.step(state).scripts.find_lost(noted)):
                step = self.step(state)
                step.scripts.run = step.scripts.run._replace(chord_spent=True)
                step.send(rollout)
                yield f"rollout {rollout} is sent again", step.done()
        yield from self._time(state)

    def _time(self, state: State) -> Iterator[tuple[str, State]]:
        """The dead fall silent by themselves."""
        run = state.run
        tokens = {worker.token for worker in state.workers}
        submitting = state.submitter.phase not in ("done", "dead") and state.submitter.token == run.submission
        if run.state in ("submitting", "half_submitted") and not run.submitter_silent and not submitting:
            yield "the submitter is silent", self._run_changed(state, submitter_silent=True)
        for rollout, token in run.holders:
            if rollout not in run.silent and token not in tokens:
                yield f"rollout {rollout}'s holder is silent", self._run_changed(state, silent=run.silent | {rollout})
        if run.state == "finalizing" and not run.finalizer_silent and run.finalizer not in tokens:
            yield "the finaliser is silent", self._run_changed(state, finalizer_silent=True)

    def _run_changed(self, state: State, **changes: object) -> State:
        step = self.step(state)
        step.scripts.run = step.scripts.run._replace(**changes)
        return step.done()

    # -- faults -----------------------------------------------------------------------------------------------------

    def _worker_faults(self, state: State, number: int, me: Worker, name: str) -> Iterator[tuple[str, State]]:
        if state.budget.deaths:
            step = self.step(state).pay("deaths")
            step.idle(number)
            step.send(me.message)
            yield f"{name} dies", step.done()
        if state.budget.doubles:
            step = self.step(state).pay("doubles")
            step.send(me.message)
            yield f"{name}'s message is delivered again", step.done()
        if state.budget.pauses and not me.silent:
            run, step = state.run, self.step(state).pay("pauses")
            if dict(run.holders).get(me.message) == me.token:
                step.scripts.run = run._replace(silent=run.silent | {me.message})
                step.worker(number, silent=True)
                yield f"{name} is slow", step.done()
            elif run.finalizer == me.token and run.state == "finalizing":
                step.scripts.run = run._replace(finalizer_silent=True)
                step.worker(number, silent=True)
                yield f"{name} is slow", step.done()

    def _faults(self, state: State) -> Iterator[tuple[str, State]]:
        if state.budget.lost_messages:
            for message in sorted(set(state.messages)):
                step = self.step(state).pay("lost_messages")
                messages = list(state.messages)
                messages.remove(message)
                step.state = step.state._replace(messages=tuple(messages))
                yield f"the message {message} is lost", step.done()
        alive = state.submitter.phase not in ("done", "dead")
        if state.budget.pauses and alive and state.run.state == "submitting" and not state.run.submitter_silent:
            step = self.step(state).pay("pauses")
            step.scripts.run = step.scripts.run._replace(submitter_silent=True)
            yield "the submitter is slow", step.done()
        if state.budget.cancels and state.run.state:
            step = self.step(state).pay("cancels")
            step.scripts.cancel(CANCELLED)
            yield "somebody cancels", step.done()
        if state.budget.crashes:
            if state.saved is None:
                saved = (state.run, state.messages, state.chord)
                yield "the server saves", state._replace(saved=saved)
            else:
                step = self.step(state).pay("crashes")
                step.scripts.run, messages, chord = state.saved
                step.state = step.state._replace(saved=None, messages=messages, chord=chord)
                yield "the server is killed and comes back", step.done()


def _unused(state: State) -> str:
    """The first token that nothing names."""
    named = {worker.token for worker in state.workers} | {token for _, token in state.run.holders}
    named |= {token for _, _, token in state.run.results} | {state.run.finalizer}
    if state.saved is not None:
        named |= {token for _, token in state.saved[0].holders} | {state.saved[0].finalizer}
        named |= {token for _, _, token in state.saved[0].results}
    number = 1
    while f"e{number}" in named:
        number += 1
    return f"e{number}"


def main(words: list[str]) -> None:
    """Explores with the given budget: rollouts=1 workers=2 attempts=2 deaths=1 losses=1 ..."""
    given = {name: int(value) for name, value in (word.split("=", 1) for word in words)}
    system = RunSystem(given.pop("rollouts", 1), given.pop("workers", 2), given.pop("attempts", 2))
    began = time.monotonic()
    found = explore(system, system.start(Budget(**given)))
    sys.stdout.write(f"{found.states} states, {found.steps} steps, no violation, {time.monotonic() - began:.0f} s\n")


if __name__ == "__main__":
    main(sys.argv[1:])
