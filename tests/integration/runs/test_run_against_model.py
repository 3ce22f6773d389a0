"""The run store's Lua files do what the model of them does: random walks, each step's reply and all that the server has compared.

Time does not pass by itself here: who is silent counts as dead after hours, and the walk puts a last sign of life far into the past
where the model's clock says so.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
import redis

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.store_format import ACTIVE_RUNS, SCRIPTS
from rollout_tasks.runs.submission_store import StoredSubmission, reserve
from rollout_tasks.runs.verdict import Verdict
from tests.unit.runs.run_model import OVER, Run, RunScripts

RUN = "walked"
KEY = f"{{run:{RUN}}}"
ROLLOUTS = 3
HOURS = 36_000.0
STEPS = 120
WALKS = 48
TOKENS = ("one", "two", "three")
FAILURES = {"lost": FailureClass.WORKER_LOST, "cancelled": FailureClass.CANCELLED}


def name(rollout: int) -> str:
    return f"item-{rollout}#0"


def verdict_of(rollout: int, word: str) -> Verdict:
    status = {"good": "completed", "lost": "failed", "cancelled": "cancelled"}[word]
    score = 1.0 if word == "good" else None
    return Verdict(name(rollout), 1, status, failure_class=FAILURES.get(word), score=score)  # type: ignore[arg-type]


class Server:
    """The run store, spoken to in the model's words."""

    def __init__(self, client: redis.Redis, attempts: int) -> None:
        self.client: Any = client
        self.store = RunStore(client, silent_seconds=HOURS)
        self.config = RunConfig(max_attempts=attempts)

    # Submitting

    def create(self, token: str) -> bool:
        return bool(reserve(self.store.client, RUN, self.config, "/nowhere", ROLLOUTS, token=token))

    def submission(self, token: str) -> StoredSubmission:
        return StoredSubmission(self.client, RUN, token)

    def add_pending(self, token: str, rollouts: list[int]) -> str:
        items = [Item(f"item-{rollout}", "?") for rollout in rollouts]
        return self._added(lambda: self.submission(token).add_items(items, map(name, rollouts)))

    def add_results(self, token: str, results: list[tuple[int, str]]) -> str:
        verdicts = [verdict_of(*result) for result in results]
        return self._added(lambda: self.submission(token).add_results(verdicts))

    def add_beat(self, token: str) -> str:
        return self._added(self.submission(token).submitter_lives)

    @staticmethod
    def _added(add: Any) -> str:
        """The state; a refusal's sentence where there was one."""
        try:
            add()
        except UserError as error:
            return str(error)
        return "submitting"

    def submitted(self, token: str, what: str) -> bool | str:
        try:
            return (
                self.submission(token).everything_stored()
                if what == "stored"
                else self.submission(token).everything_sent()
            )
        except UserError as error:
            return str(error)

    # Rolling out

    def claim(self, rollout: int, token: str, after: int, dead: str) -> tuple[str, int]:
        claim = self.store.claim(RUN, name(rollout), {"token": token}, after=after, dead_holder=dead)
        return (claim.status, claim.attempt)

    def commit(self, rollout: int, token: str, word: str) -> tuple[str, int, bool]:
        commit = self.store.commit(RUN, verdict_of(rollout, word), token)
        return (commit.outcome, commit.left, commit.finalize)

    def cancel(self) -> tuple[str, int, int, list[int]]:
        done = self.store.cancel(RUN)
        return (done.found, done.cancelled, done.left, [_number(rollout) for rollout in done.begun])

    def find_lost(self, noted: frozenset[int]) -> frozenset[int]:
        if noted:
            self.client.sadd("noted", *(f"{RUN} {name(rollout)}" for rollout in noted))
        SCRIPTS.run(self.client, "find_lost", [KEY, "noted", "lost"], [RUN, HOURS, "0", 1000])
        found = frozenset(_number(rollout) for rollout in self.client.smembers("lost"))
        self.client.delete("noted", "lost")
        return found

    # Time

    def submitter_is_silent(self) -> None:
        self.client.hset(KEY, "submitter_beat", 1)

    def holder_is_silent(self, rollout: int) -> None:
        self.client.zadd(f"{KEY}:alive", {name(rollout): 1})

    def finalizer_is_silent(self) -> None:
        self.client.hset(KEY, "finalizer_beat", 1)

    # What it has

    def run(self) -> Run:
        found = self.client.hgetall(KEY)
        if not found:
            assert not [key for key in self.client.scan_iter(f"{KEY}*") if not key.endswith(":suspects")]
            return Run()
        alive = self.client.zrange(f"{KEY}:alive", 0, -1, withscores=True)
        described = self.client.hgetall(f"{KEY}:holders")
        holders = {_number(rollout): _token(text) for rollout, text in described.items()}
        exhausted = frozenset(
            _number(rollout) for rollout, text in described.items() if json.loads(text).get("exhausted")
        )
        assert {_number(rollout) for rollout, _ in alive} == holders.keys()
        results = [
            (_number(rollout), *_result(text)) for rollout, text in self.client.hgetall(f"{KEY}:results").items()
        ]
        attempts = self.client.hgetall(f"{KEY}:attempts").items()
        return Run(
            state=found["state"],
            before=found.get("state_before", ""),
            submission=found["submission"],
            submitter_silent=found["submitter_beat"] == "1",
            pending=frozenset(map(_number, self.client.smembers(f"{KEY}:pending"))),
            holders=tuple(sorted(holders.items())),
            exhausted=exhausted,
            silent=frozenset(_number(rollout) for rollout, score in alive if score == 1),
            attempts=tuple(sorted((_number(rollout), int(count)) for rollout, count in attempts)),
            results=tuple(sorted(results)),
            chord_spent=found.get("chord_spent") == "1",
            finalizer=found.get("finalizer", ""),
            finalizer_silent=found.get("finalizer_beat") == "1",
            times_finalised=int(found.get("times_finalised", 0)),
        )


def _number(rollout: str) -> int:
    return int(rollout.removeprefix("item-").removesuffix("#0"))


def _token(text: str) -> str:
    return str(json.loads(text)["token"])


def _result(text: str) -> tuple[str, str]:
    verdict = Verdict.from_json(text, rollout_id="x")
    words = {"completed": "good", "failed": "lost", "cancelled": "cancelled"}
    return words[verdict.status], _token(text)


class Walk:
    """The model and the server, taking the same steps."""

    def __init__(self, client: redis.Redis, seed: int) -> None:
        client.flushall()
        self.chance = random.Random(seed)
        attempts = 1 + seed % 2
        self.server = Server(client, attempts)
        self.model = RunScripts(Run(), ROLLOUTS, attempts)
        self.seen: Counter[str] = Counter()

    def go(self) -> None:
        steps = ["claim"] * 6 + ["commit"] * 3 + ["pass_time"] * 3 + ["beat"] * 2 + ["submit"] * 4 + ["roll_out"] * 2
        steps += ["begin_finalize", "end_finalize", "adopt"] * 2 + [
            "beat_finalize",
            "hand_back",
            "uncount",
            "find_lost",
        ]
        for _ in range(STEPS):
            step = self.chance.choice(steps)
            if not self.model.run.state and self.chance.random() < 0.7:
                step = "submit"
            elif self.model.run.state in OVER and self.chance.random() < 0.3:
                step = "forget"
            elif self.chance.random() < 0.03:
                step = self.chance.choice(["cancel", "cancel", "drain", "forget"])
            outcome = getattr(self, f"_{step}")()
            self.seen[f"{step}: {outcome}"] += 1
            self._compare()

    def _compare(self) -> None:
        found, expected = self.server.run(), self.model.run
        assert found == expected
        active = expected.state not in ("", *OVER)
        assert (RUN in self.server.client.smembers(ACTIVE_RUNS)) == active
        if expected.state:
            progress = self.server.store.progress(RUN)
            assert progress is not None
            words = Counter(expected.committed.values())
            counted = (progress.completed, progress.failed, progress.cancelled, progress.score_sum)
            assert counted == (words["good"], words["lost"], words["cancelled"], words["good"])
            assert progress.running == len(expected.holders) - len(expected.silent)

    def _token(self) -> str:
        return self.chance.choice(TOKENS)

    def _rollout(self) -> int:
        return self.chance.randrange(ROLLOUTS)

    # The steps

    def _submit(self) -> str:
        token = self.model.run.submission if self.model.run.submission and self.chance.random() < 0.9 else self._token()
        steps = ["create", "pending", "pending", "pending", "results", "beat", "stored", "sent", "sent"]
        step = self.chance.choice(steps) if self.model.run.state else "create"
        if step == "create":
            made = self.model.create(token)
            assert self.server.create(token) == made
            return f"create {made}"
        if step in ("stored", "sent"):
            said = self.model.submitted(token, step)
            answer = self.server.submitted(token, step)
            assert (
                answer == (said != "incomplete") if said not in ("unknown", "superseded") else isinstance(answer, str)
            )
            return f"{step} {said}"
        rollouts = [rollout for rollout in range(ROLLOUTS) if self.chance.random() < 0.7] or [0]
        if step == "pending":
            said, answer = self.model.add_pending(token, rollouts), self.server.add_pending(token, rollouts)
        elif step == "results":
            results = [(rollouts[0], "good")]
            said, answer = self.model.add_results(token, results), self.server.add_results(token, results)
        else:
            said, answer = self.model.add_beat(token), self.server.add_beat(token)
        assert (answer == "submitting") == (said == "submitting")
        return f"{step} {said}"

    def _adopt(self) -> str:
        said = self.model.adopt()
        assert (self.server.store.adopt(RUN) or "") == said
        if said == "half_submitted":
            self.seen[f"claim: {self._claim()}"] += 1
        return said

    def _drain(self) -> str:
        said = self.model.change_state("draining", "submitting", "running")
        self.server.store.set_draining(RUN)
        return said

    def _forget(self) -> str:
        states = ("done", "cancelled", "draining", "half_submitted")
        gone = self.model.forget(*states)
        assert self.server.store.forget(RUN, *states) == gone
        return str(gone)

    def _claim(self) -> str:
        rollout, token = self._rollout(), self._token()
        after = self.chance.choice([0, 0, 0, 1, 2])
        dead = self._token() if self.chance.random() < 0.1 else ""
        said = self.model.claim(rollout, token, after, dead)
        assert self.server.claim(rollout, token, after, dead) == said
        return said[0]

    def _roll_out(self) -> str:
        """One that nobody interferes with."""
        if not self.model.run.pending:
            return "nothing"
        rollout, token = min(self.model.run.pending), self._token()
        assert self.server.claim(rollout, token, 0, "") == self.model.claim(rollout, token)
        said = self.model.commit(rollout, token, "good")
        assert self.server.commit(rollout, token, "good") == said
        return said[0]

    def _holder(self, rollout: int) -> str:
        return dict(self.model.run.holders).get(rollout, self._token()) if self.chance.random() < 0.7 else self._token()

    def _beat(self) -> str:
        rollout = self._rollout()
        token = self._holder(rollout)
        said = self.model.beat(rollout, token)
        assert self.server.store.beat(RUN, name(rollout), token) == said
        return said

    def _uncount(self) -> str:
        rollout = self._rollout()
        token = self._holder(rollout)
        attempt = self.chance.choice([1, 2, 3])
        said = self.model.uncount(rollout, token, attempt)
        assert self.server.store.uncount(RUN, name(rollout), token, attempt) == said
        return str(said)

    def _hand_back(self) -> str:
        rollout = self._rollout()
        token = self._holder(rollout)
        said = self.model.hand_back(rollout, token)
        assert self.server.store.hand_back(RUN, name(rollout), token) == said
        return str(said)

    def _commit(self) -> str:
        rollout, word = self._rollout(), self.chance.choice(["good", "good", "lost"])
        token = self._holder(rollout)
        said = self.model.commit(rollout, token, word)
        assert self.server.commit(rollout, token, word) == said
        return f"{said[0]} {said[2]}"

    def _cancel(self) -> str:
        said = self.model.cancel()
        assert self.server.cancel() == said
        return said[0]

    def _find_lost(self) -> str:
        noted = frozenset(rollout for rollout in range(ROLLOUTS) if self.chance.random() < 0.4)
        said = self.model.find_lost(noted)
        assert self.server.find_lost(noted) == said
        return str(bool(said))

    def _begin_finalize(self) -> str:
        token = self._token()
        said = self.model.begin_finalize(token)
        assert self.server.store.begin_finalize(RUN, token, silent_seconds=HOURS) == said
        return said

    def _finalizer(self) -> str:
        return self.model.run.finalizer if self.model.run.finalizer and self.chance.random() < 0.6 else self._token()

    def _beat_finalize(self) -> str:
        token = self._finalizer()
        said = self.model.beat_finalize(token)
        assert self.server.store.beat_finalize(RUN, token) == said
        return said

    def _end_finalize(self) -> str:
        token = self._finalizer()
        said = self.model.end_finalize(token)
        assert self.server.store.end_finalize(RUN, token, "now") == said
        return said

    def _pass_time(self) -> str:
        run = self.model.run
        who = self.chance.choice(["submitter", "holder", "holder", "finalizer"])
        if who == "submitter" and run.state:
            self.model.run = run._replace(submitter_silent=True)
            self.server.submitter_is_silent()
        elif who == "holder" and run.holders:
            rollout, _ = self.chance.choice(run.holders)
            self.model.run = run._replace(silent=run.silent | {rollout})
            self.server.holder_is_silent(rollout)
        elif who == "finalizer" and run.state == "finalizing":
            self.model.run = run._replace(finalizer_silent=True)
            self.server.finalizer_is_silent()
        else:
            return "nobody"
        return who


MUST_BE_SEEN = [
    *(
        f"claim: {status}"
        for status in ("claimed", "exhausted", "committed", "busy", "superseded", "cancelled", "draining")
    ),
    *("claim: half_submitted", "claim: unknown", "commit: ok True", "commit: ok False", "commit: committed False"),
    *(
        "commit: superseded False",
        "hand_back: True",
        "hand_back: False",
        "uncount: True",
        "uncount: False",
        "find_lost: True",
        "find_lost: False",
    ),
    *(f"begin_finalize: {answer}" for answer in ("go", "incomplete", "busy", "over", "unknown")),
    *("end_finalize: done", "end_finalize: cancelled", "end_finalize: superseded"),
    *("beat_finalize: finalizing", "beat_finalize: superseded"),
    *(
        "adopt: running",
        "adopt: half_submitted",
        "adopt: submitting",
        "submit: sent running",
        "submit: sent incomplete",
    ),
    *(
        "cancel: running",
        "cancel: submitting",
        "cancel: finalizing",
        "forget: True",
        "forget: False",
        "drain: draining",
    ),
]


def test_the_server_does_what_the_model_does(redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    seen: Counter[str] = Counter()
    for seed in range(WALKS):
        walk = Walk(client, seed)
        try:
            walk.go()
        except AssertionError as error:
            pytest.fail(f"walk {seed}, after {sum(walk.seen.values())} steps: {error}")
        seen += walk.seen
    assert not [what for what in MUST_BE_SEEN if not seen[what]]
