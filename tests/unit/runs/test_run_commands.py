"""The commands of scripts/submit.py, called in this process, with a real Valkey that no worker serves."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from rollout_tasks.api import find
from rollout_tasks.app import app
from rollout_tasks.cli import dry_run, run_actions, runs
from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.errors import UserError
from rollout_tasks.models.outage import outage_of, wait_while_out
from rollout_tasks.runs import presence, submission_store
from rollout_tasks.runs.finalize import finalize, score_run
from rollout_tasks.runs.finalizer_claim import FinalizerClaim, Superseded
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission_store import StoredSubmission, reserve
from rollout_tasks.runs.submit import submitter_beats
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.settings import settings
from tests.conftest import free_port
from vm_pool.pool import VMPool
from vm_pool.states import Endpoint
from vm_pool.waiting import Request

NO_VM = {"needs_vm": False}
CLOSED = "http://127.0.0.1:1/v1"


class Served(ThreadingHTTPServer):
    """An endpoint whose only model belongs to somebody."""

    owner = "me"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Served

    def do_GET(self) -> None:
        body = json.dumps({"data": [{"id": "m-1", "owned_by": self.server.owner}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture(name="served")
def _served() -> Iterator[Served]:
    with Served() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


class Shell:
    """Calls commands and keeps what they print."""

    def __init__(self, redis_url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.client = redis.Redis.from_url(redis_url, decode_responses=True)
        self.store = RunStore(self.client)
        self.folder = folder
        self.out = self.err = ""
        self._capsys = capsys

    def config(self, *items: dict[str, Any], **options: Any) -> RunConfig:
        data = self.folder / "items.jsonl"
        data.write_text("".join(json.dumps({"question": "?", **item}) + "\n" for item in items))
        given = {"run_id": "night-1", "env_mode": "simulated", "simulated": NO_VM, **options}
        given["data"] = {"path": str(data), **given.pop("data", {})}
        return RunConfig.model_validate({"output_dir": str(self.folder / "results"), **given})

    def call(self, command: Callable[..., int], *given: Any, **options: Any) -> int:
        flags = {"embedded": None, "follow": False, "dry_run": False}
        flags = flags if command in (run_actions.submit, run_actions.resume) else {}
        if command is run_actions.status:
            flags = {"follow": False}
        code = command(*given, **{**flags, "as_json": False, **options})
        self.out, self.err = self._capsys.readouterr()
        return code

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.folder / "results" / "night-1")

    def finish(self, rollout_id: str) -> None:
        """Has a rollout's verdict written and committed, as a worker does."""
        self.store.claim("night-1", rollout_id, {"token": rollout_id, "message": "m"})
        self.run.begin_attempt(rollout_id, 1)
        verdict = Verdict(rollout_id, 1, "completed", answer="x", score=1.0)
        self.run.write_attempt(verdict)
        self.run.settle(verdict, written=True)
        self.store.commit("night-1", verdict, rollout_id)


@pytest.fixture
def shell(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shell]:
    monkeypatch.setenv("ROLLOUT_REDIS_URL", redis_url)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_URL"):
        monkeypatch.setenv(name, "")
    settings.cache_clear()
    for name in ("broker_url", "result_backend"):
        monkeypatch.setitem(app.conf, name, redis_url)
    monkeypatch.setattr(app, "_pool", None)
    monkeypatch.setattr(app.amqp, "_producer_pool", None)
    monkeypatch.setattr(app._local, "backend", None, raising=False)
    shell = Shell(redis_url, tmp_path, capsys)
    yield shell
    shell.client.close()


def test_a_dry_run_says_what_would_be_done_and_does_nothing(shell: Shell) -> None:
    config = shell.config({"id": "a"}, {"id": "b"}, rollouts_per_item=2)

    assert shell.call(run_actions.submit, config, dry_run=True) == 0
    assert shell.out == (
        "Nothing was enqueued. items: 2, rollouts: 4, environments: ['simulated'], metric: exact_match,"
        " model: None, embedded: False\n"
    )
    assert shell.call(run_actions.submit, config, dry_run=True, embedded=True, as_json=True) == 0
    assert json.loads(shell.out) == {
        "items": 2,
        "rollouts": 4,
        "environments": ["simulated"],
        "metric": "exact_match",
        "model": None,
        "embedded": True,
    }
    assert not shell.run.path.exists()
    assert shell.client.keys() == []


def test_a_dry_run_checks_what_a_run_would_need(shell: Shell) -> None:
    with pytest.raises(UserError, match=r"^--pool: the pool 'default' has no VMs"):
        shell.call(run_actions.submit, shell.config({"id": "a"}, simulated={}), dry_run=True)
    with pytest.raises(UserError, match=r"^no model is configured: set OPENAI_API_KEY"):
        shell.call(run_actions.submit, shell.config({"id": "a", "answer": "5"}, env_mode="math"), dry_run=True)
    with pytest.raises(UserError, match=r"^no model is configured, and the scripted model has no script"):
        shell.call(
            run_actions.submit, shell.config({"id": "a", "answer": "5"}, env_mode="math"), dry_run=True, embedded=True
        )
    shell.run.path.mkdir(parents=True)
    with pytest.raises(UserError, match=r"^--run-id: .*night-1 exists already"):
        shell.call(run_actions.submit, shell.config({"id": "a"}), dry_run=True)
    VMPool(shell.client, "default").register("vm-0", Endpoint("127.0.0.1", {"control": 1}))
    assert shell.call(run_actions.submit, shell.config({"id": "a"}, simulated={}, run_id="other"), dry_run=True) == 0


@pytest.mark.parametrize(
    ("needed", "said"),
    [
        ({"programs": {"chrome": 65, "gimp": 27}, "downloads": 447}, "programs: chrome 65, gimp 27; downloads: 447"),
        ({"downloads": 3, "accounts": 0, "programs": {}}, "downloads: 3"),
        ({"downloads": 0}, "nothing"),
    ],
)
def test_what_tasks_need_is_said_in_a_line(needed: dict[str, Any], said: str) -> None:
    assert dry_run._listed(needed) == said


def test_wrong_items_are_left_out_only_when_that_was_asked_for(shell: Shell) -> None:
    items = [{"id": "good"}, {"id": "bad", "env_config": {"env_mode": "osworld"}}]

    with pytest.raises(UserError, match=r"^\S+/items\.jsonl, line 2: item 'bad': "):
        shell.call(run_actions.submit, shell.config(*items))
    assert shell.client.keys() == []
    assert shell.call(run_actions.submit, shell.config(*items, data={"skip_invalid": True})) == 0

    assert "items.jsonl, line 2: item 'bad': " in shell.err
    assert [item.id for item in shell.run.description.items()] == ["good"]
    assert shell.store.progress("night-1").total == 1  # type: ignore[union-attr]


def test_a_finaliser_says_that_it_lives_under_its_own_claim(shell: Shell) -> None:
    shell.call(run_actions.submit, shell.config({"id": "a"}))
    shell.finish("a#0")
    assert shell.store.begin_finalize("night-1", "mine", silent_seconds=60) == "go"

    with FinalizerClaim(shell.store, "night-1", "mine", interval=0.05) as claim:
        began = claim._last_beat
        deadline = time.monotonic() + 30
        while claim._last_beat == began:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        claim.check()


def test_a_finaliser_that_was_silent_asks_before_it_goes_on(shell: Shell) -> None:
    shell.call(run_actions.submit, shell.config({"id": "a"}))
    shell.finish("a#0")
    assert shell.store.begin_finalize("night-1", "mine", silent_seconds=60) == "go"
    claim = FinalizerClaim(shell.store, "night-1", "mine", interval=60)

    claim._last_beat -= 1e6
    claim.check()
    time.sleep(0.01)
    assert shell.store.begin_finalize("night-1", "theirs", silent_seconds=0) == "go"
    claim.check()
    claim._last_beat -= 1e6
    with pytest.raises(Superseded, match="another process finalises it now"):
        claim.check()


def test_a_submitter_says_that_it_lives_while_it_sends(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission_store, "SUBMITTER_BEAT_SECONDS", 0.05)
    stored = reserve(shell.store.client, "night-2", RunConfig(), str(shell.folder), 1)
    key = "{run:night-2}"
    before = shell.client.hgetall(key)

    with submitter_beats(stored):
        deadline = time.monotonic() + 30
        while shell.client.hgetall(key) == before:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_followed_run_is_reported_as_json_once_it_is_over(shell: Shell) -> None:
    def work() -> None:
        deadline = time.monotonic() + 60
        while (progress := shell.store.progress("night-1")) is None or progress.state != "running":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        shell.finish("a#0")
        assert finalize("night-1") == "done"

    worker = threading.Thread(target=work)
    worker.start()
    code = shell.call(run_actions.submit, shell.config({"id": "a"}), follow=True, as_json=True)
    worker.join()

    said = json.loads(shell.out)
    assert (code, said["state"], said["summary"]["average_score"]) == (0, "done", 1.0)


def test_a_run_is_enqueued_and_says_how_to_come_back(shell: Shell) -> None:
    assert shell.call(run_actions.submit, shell.config({"id": "a"}, {"id": "b"})) == 0

    assert shell.out.splitlines() == [
        f"Run night-1: 2 rollouts, folder {shell.run.path}",
        "Enqueued. Follow it: rollouts watch night-1",
        "It waits: no worker serves rollout.simulated: start one with `celery -A rollout_tasks worker`",
    ]
    assert shell.client.llen("rollout.simulated") == 2
    progress = shell.store.progress("night-1")
    assert progress is not None
    assert (progress.state, progress.total, progress.pending) == ("running", 2, 2)
    with pytest.raises(
        UserError,
        match=r"^--run-id: a run 'night-1' exists already; take another name, or continue it with rollouts resume",
    ):
        shell.call(run_actions.submit, shell.config({"id": "a"}))


def test_a_program_is_told_run_folder_and_number_of_rollouts(shell: Shell) -> None:
    assert shell.call(run_actions.submit, shell.config({"id": "a"}), as_json=True) == 0

    assert json.loads(shell.out) == {"run_id": "night-1", "folder": str(shell.run.path), "rollouts": 1}
    assert shell.err == f"Run night-1: 1 rollouts, folder {shell.run.path}\n"


def test_a_complete_run_is_not_sent_again(shell: Shell) -> None:
    shell.call(run_actions.submit, shell.config({"id": "a"}))
    shell.finish("a#0")
    finalize("night-1")
    shell.store.forget("night-1", "done")

    assert shell.call(run_actions.resume, "night-1", {"output_dir": shell.folder / "results"}) == 0

    assert (
        shell.out == f"Run night-1 is complete: each of its 1 rollouts has a verdict. Its report: {shell.run.report}\n"
    )
    assert shell.store.progress("night-1") is None
    shell.call(run_actions.resume, "night-1", {"output_dir": shell.folder / "results"}, as_json=True)
    assert json.loads(shell.out) == {"run_id": "night-1", "folder": str(shell.run.path), "rollouts": 0}


def test_a_complete_run_that_was_not_to_be_evaluated_is_complete_without_redis(shell: Shell) -> None:
    shell.call(run_actions.submit, shell.config({"id": "a"}, evaluate_results=False))
    shell.finish("a#0")
    finalize("night-1")
    shell.store.forget("night-1", "done")
    options = {"output_dir": shell.folder / "results"}

    assert shell.call(run_actions.status, "night-1", options, as_json=True) == 0
    assert json.loads(shell.out)["committed"] == 1
    assert shell.call(run_actions.resume, "night-1", options) == 0
    assert shell.out == f"Run night-1 is complete: each of its 1 rollouts has a verdict. Its folder: {shell.run.path}\n"
    assert shell.store.progress("night-1") is None
    assert shell.call(run_actions.status, "night-1", options) == 0
    assert shell.out.startswith("Run night-1: done: 1/1 rollouts")


def test_an_outage_where_this_machine_would_ask_is_none_of_a_run_without_a_model(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.call(run_actions.submit, shell.config({"id": "a"}))
    monkeypatch.setenv("OPENAI_BASE_URL", CLOSED)
    settings.cache_clear()
    looks = iter([True, True, False])
    assert wait_while_out(shell.client, CLOSED, suspected=True, wanted=lambda: next(looks))
    assert outage_of(shell.client, CLOSED)

    assert shell.call(run_actions.status, "night-1", {}, as_json=True) == 0

    assert json.loads(shell.out)["waits_for"].startswith("no worker serves ")
    with_model = shell.config({"id": "a"}, run_id="night-2", model={"base_url": CLOSED})
    shell.call(run_actions.submit, with_model)
    assert shell.call(run_actions.status, "night-2", {}, as_json=True) == 0
    assert "rollouts wait for it" in json.loads(shell.out)["waits_for"]


def test_who_answers_a_resumed_run_is_what_its_endpoint_says(shell: Shell, served: Served) -> None:
    asking = {"env_mode": "math", "model": {"base_url": served.url, "name": "m-1"}}
    options = {"output_dir": shell.folder / "results", "model": {"base_url": f"{served.url}/other"}}
    for before, after in (("scripted", "me"), ("me", "scripted")):
        served.owner = before
        shell.call(run_actions.submit, shell.config({"id": "a", "answer": "1"}, **asking))
        assert shell.run.description.config().model.scripted is (before == "scripted")
        shell.store.forget("night-1", "running")
        served.owner = after

        assert shell.call(run_actions.resume, "night-1", options, dry_run=True, as_json=True) == 0
        assert json.loads(shell.out)["model"] == ("scripted" if after == "scripted" else "m-1")
        assert shell.call(run_actions.resume, "night-1", options) == 0

        assert shell.run.description.config().model.scripted is (after == "scripted")
        assert shell.store.config("night-1")[0].model.scripted is (after == "scripted")
        shell.store.forget("night-1", "running")
        shell.run.discard()


def test_a_run_of_a_model_pool_is_resumed_at_an_endpoint(shell: Shell) -> None:
    shell.call(run_actions.submit, shell.config({"id": "a"}, model={"base_url": "http://127.0.0.1:1/v1"}))
    before = shell.run.description.config()
    pooled = before.model_copy(update={"model": before.model.model_copy(update={"base_url": None, "pool": "p"})})
    shell.run.description.record_resume(pooled, embedded=False)
    shell.store.forget("night-1", "running")
    options = {"output_dir": shell.folder / "results", "model": {"base_url": "http://127.0.0.1:2/v1"}}

    assert shell.call(run_actions.resume, "night-1", options) == 0

    now = shell.run.description.config().model
    assert (now.base_url, now.pool) == ("http://127.0.0.1:2/v1", None)
    assert shell.run.description.document()["earlier_base_urls"] == ["http://127.0.0.1:1/v1", "pool://p"]


def test_a_run_is_resumed_at_another_endpoint(shell: Shell) -> None:
    shell.call(run_actions.submit, shell.config({"id": "a"}, model={"base_url": "http://127.0.0.1:1/v1"}))
    shell.store.forget("night-1", "running")
    options = {"output_dir": shell.folder / "results", "model": {"base_url": "http://127.0.0.1:2/v1/"}}

    assert shell.call(run_actions.resume, "night-1", options) == 0

    assert shell.run.description.config().model.base_url == "http://127.0.0.1:2/v1"
    assert shell.store.config("night-1")[0].model.base_url == "http://127.0.0.1:2/v1"
    assert shell.run.description.document()["earlier_base_urls"] == ["http://127.0.0.1:1/v1"]
    assert shell.run.description.document()["benchmark"]["name"] == "items"


def test_a_further_model_of_a_run_is_resumed_at_another_endpoint(shell: Shell) -> None:
    shell.call(run_actions.submit, shell.config({"id": "a"}, model={"base_url": CLOSED}))
    role = parse_config({"model_roles": [f"grounder=small,base-url={CLOSED},prompt-price=1,completion-price=1"]})
    before = shell.run.description.config().model_copy(update={"model_roles": role.model_roles})
    shell.run.description.record_resume(before, embedded=False)
    shell.store.forget("night-1", "running")

    def resume(role: str) -> int:
        options = {"output_dir": shell.folder / "results", "model_roles": [role]}
        return shell.call(run_actions.resume, "night-1", options)

    with pytest.raises(UserError, match=r"^--model-role judge: the run has no model of this name$"):
        resume("judge=small,base-url=http://127.0.0.1:2/v1")
    with pytest.raises(UserError, match=r"^--model-role grounder: a resumed run keeps its models: 'small', not 'big'$"):
        resume("grounder=big,base-url=http://127.0.0.1:2/v1")
    with pytest.raises(
        UserError, match=r"^--model-role grounder: a resumed run keeps its own configuration, but for base-url,"
    ):
        resume("grounder=small,base-url=http://127.0.0.1:2/v1,temperature=1")
    assert resume("grounder=small,base-url=http://127.0.0.1:2/v1") == 0

    assert shell.run.description.document()["earlier_role_base_urls"] == {"grounder": [CLOSED]}
    for config in (shell.run.description.config(), shell.store.config("night-1")[0]):
        [now] = config.model_roles
        assert (now.model.base_url, now.model.prompt_price) == ("http://127.0.0.1:2/v1", None)
        assert config.model.base_url == CLOSED


def test_a_further_model_without_an_endpoint_moves_with_the_runs_own_and_has_other_prices_there(shell: Shell) -> None:
    shell.call(run_actions.submit, shell.config({"id": "a"}, model={"base_url": CLOSED}))
    role = parse_config({"model_roles": ["grounder=small,prompt-price=1,completion-price=1"]})
    before = shell.run.description.config().model_copy(update={"model_roles": role.model_roles})
    shell.run.description.record_resume(before, embedded=False)
    shell.store.forget("night-1", "running")
    options = {"output_dir": shell.folder / "results", "model": {"base_url": "http://127.0.0.1:2/v1"}}

    assert shell.call(run_actions.resume, "night-1", options) == 0

    now = shell.run.description.config()
    assert [model.base_url for model in now.models] == ["http://127.0.0.1:2/v1"] * 2
    assert now.model_roles[0].model.prompt_price is None


def test_a_run_that_somebody_is_at_work_on_is_not_resumed(shell: Shell) -> None:
    shell.call(run_actions.submit, shell.config({"id": "a"}))

    with pytest.raises(UserError, match=r"^run night-1 is still running; follow it with rollouts watch night-1"):
        shell.call(run_actions.resume, str(shell.run.path), {})


def test_what_is_committed_is_kept_when_a_run_is_cancelled_and_resumed(shell: Shell) -> None:
    shell.call(run_actions.submit, shell.config({"id": "a"}, {"id": "b"}, {"id": "c"}))
    shell.finish("a#0")
    shell.run.begin_attempt("b#0", 1)

    assert shell.call(run_actions.cancel, "night-1", {}) == 0
    assert shell.out == "Run night-1: 2 rollouts cancelled, 0 running ones are being stopped\n"
    assert shell.client.llen("finalize") >= 1  # where nothing runs any more, nobody else would ask for it
    shell.client.delete("rollout.simulated", "finalize")
    shell.client.hset("{run:night-1}", "state", "cancelled")

    assert shell.call(run_actions.status, "night-1", {"output_dir": shell.folder / "results"}) == 1
    assert "2 of 3 rollouts were cancelled; roll them out with: " in shell.err
    assert shell.call(run_actions.resume, "night-1", {"output_dir": str(shell.folder / "results")}) == 0
    assert shell.out.startswith(f"Run night-1: 2 rollouts, 1 are kept, folder {shell.run.path}\n")
    assert shell.client.llen("rollout.simulated") == 2
    assert (shell.run.path / "b/0/earlier-1/attempt-1").is_dir()
    assert (shell.run.path / "a/0/attempt-1").is_dir()


@pytest.mark.parametrize("begun", [False, True])
def test_a_broker_that_fails_when_a_run_is_cancelled_is_said_with_what_was_done(
    shell: Shell, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.call(run_actions.submit, shell.config({"id": "a"}, {"id": "b"}))
    if begun:  # it is brought to its end as by a worker
        shell.run.begin_attempt("a#0", 1)
    monkeypatch.setitem(app.conf, "broker_url", f"redis://127.0.0.1:{free_port()}")
    monkeypatch.setattr(app, "_pool", None)
    monkeypatch.setattr(app.amqp, "_producer_pool", None)

    with pytest.raises(UserError) as caught:
        shell.call(run_actions.cancel, "night-1", {})

    assert re.fullmatch(
        r"run night-1 was cancelled, but then Redis failed \(.+refused\.?\): a worker writes its report once Redis works again;"
        r" see rollouts status night-1",
        str(caught.value),
    )
    assert shell.store.progress("night-1").failures == {"cancelled": 2}  # type: ignore[union-attr]


def test_cancelling_says_what_it_found(shell: Shell) -> None:
    with pytest.raises(UserError, match=r"^Redis does not know run 'night-1'$"):
        shell.call(run_actions.cancel, "night-1", {})
    shell.call(run_actions.submit, shell.config({"id": "a"}, {"id": "b"}))
    shell.store.claim("night-1", "a#0", {"token": "t", "message": "m"})
    assert shell.call(run_actions.cancel, str(shell.run.path), {}, as_json=True) == 0
    assert json.loads(shell.out) == {"run_id": "night-1", "cancelled": 1, "being_stopped": 1}
    for over in ("done", "cancelled", "finalizing"):
        shell.client.hset("{run:night-1}", "state", over)
        with pytest.raises(UserError, match=f"^run night-1 is {over} already$"):
            shell.call(run_actions.cancel, "night-1", {})


def two_of_one_name(shell: Shell) -> RunFolder:
    """A run that only its folder knows, which is returned; Redis knows another one of that name."""
    shell.call(run_actions.submit, shell.config({"id": "a"}, output_dir=str(shell.folder / "first")))
    shell.store.forget("night-1", "running")
    shell.call(run_actions.submit, shell.config({"id": "a"}))
    return RunFolder(shell.folder / "first" / "night-1")


def test_another_run_of_that_name_is_not_cancelled(shell: Shell) -> None:
    asked = two_of_one_name(shell).path
    says = f"Redis does not know the run in {asked}, but another one called 'night-1', in {shell.run.path}"

    for named in ((str(asked), {}), ("night-1", {"output_dir": str(asked.parent)})):
        with pytest.raises(UserError, match=f"^{re.escape(says)}$"):
            shell.call(run_actions.cancel, *named)
    with pytest.raises(UserError, match=r"^no run 'night-1'"):
        shell.call(run_actions.cancel, "night-1", {"output_dir": str(shell.folder / "nowhere")})

    assert shell.store.state("night-1") == "running"
    assert shell.call(run_actions.cancel, "night-1", {}) == 0


def test_another_run_of_that_name_has_another_status(shell: Shell) -> None:
    asked = two_of_one_name(shell)

    with pytest.raises(UserError, match=f"; in its folder {asked.path} 0 of 1 rollouts have a verdict$"):
        shell.call(run_actions.status, str(asked.path), {})
    asked.settle(Verdict("a#0", 1, "completed", score=1.0), written=False)
    score_run(asked, "exact_match")
    assert shell.call(run_actions.status, str(asked.path), {}, as_json=True) == 0
    assert json.loads(shell.out)["folder"] == str(asked.path)


def test_the_api_asks_for_the_run_in_its_folder(shell: Shell) -> None:
    asked = find(str(two_of_one_name(shell).path))

    assert asked.progress().state == "unknown"
    with pytest.raises(UserError, match=r"^Redis does not know run night-1, and it is incomplete"):
        asked.wait(1)


@pytest.mark.slow
def test_the_api_cancels_the_run_in_its_folder(shell: Shell) -> None:
    asked = find(str(two_of_one_name(shell).path))

    with pytest.raises(UserError, match=r"^Redis does not know the run in .*, but another one called 'night-1', in "):
        asked.cancel()
    assert shell.store.state("night-1") == "running"


def test_a_run_is_found_by_whatever_leads_to_its_folder(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.call(run_actions.submit, shell.config({"id": "a"}))
    (shell.folder / "latest").symlink_to(shell.run.path)
    monkeypatch.chdir(shell.run.path)

    for named in (".", str(shell.folder / "latest"), f"{shell.run.path}/"):
        assert shell.call(run_actions.status, named, {}) == 0
        assert shell.out.startswith("Run night-1: running: 0/1 rollouts")
    monkeypatch.chdir(shell.folder)
    for command in (run_actions.status, run_actions.cancel):
        with pytest.raises(UserError, match=r"^no run '\.'"):
            shell.call(command, ".", {})
    assert shell.call(run_actions.cancel, "latest", {}) == 0


def test_a_status_is_a_line_or_an_object(shell: Shell) -> None:
    with pytest.raises(
        UserError, match=r"^Redis does not know run 'night-1'; if its data was lost, rollouts resume night-1"
    ):
        shell.call(run_actions.status, "night-1", {})
    shell.call(run_actions.submit, shell.config({"id": "a"}))
    VMPool(shell.client, "default").register("vm-0", Endpoint("127.0.0.1", {"control": 1}))

    assert shell.call(run_actions.status, "night-1", {}) == 0
    assert shell.out == (
        "Run night-1: running: 0/1 rollouts · 0 running · VMs 1 free"
        " · no worker serves rollout.simulated: start one with `celery -A rollout_tasks worker`\n"
    )
    assert shell.call(run_actions.status, "night-1", {}, as_json=True) == 0
    found = json.loads(shell.out)
    assert (found["state"], found["vms"]["free"], found["committed"]) == ("running", 1, 0)
    shell.call(run_actions.submit, shell.config({"id": "a"}, run_id="night-2", vm={"use_pool": False}))
    assert shell.call(run_actions.status, "night-2", {}, as_json=True) == 0
    assert json.loads(shell.out)["vms"] == {}, "it does not use that pool"


NOBODY = "no worker serves rollout.simulated: start one with `celery -A rollout_tasks worker`"


def test_a_status_says_what_killed_workers_hold(shell: Shell) -> None:
    shell.call(run_actions.submit, shell.config({"id": "a"}, {"id": "b"}, {"id": "c"}))
    for name in ("a#0", "b#0"):
        shell.store.claim("night-1", name, {"token": name})
    alive = "{run:night-1}:alive"

    def waits(seconds: float) -> str:
        """What is said when they were last heard so long ago."""
        now = float(shell.client.time()[0])
        shell.client.zadd(alive, {"a#0": now - seconds - 30, "b#0": now - seconds})
        before = {key: shell.client.dump(key) for key in shell.client.scan_iter()}
        shell.call(run_actions.status, "night-1", {}, as_json=True)
        assert {key: shell.client.dump(key) for key in shell.client.scan_iter()} == before, "a look changes nothing"
        return str(json.loads(shell.out)["waits_for"])

    held = f"{NOBODY}; 2 rollouts are held by a worker that has gone silent, for"
    assert re.fullmatch(rf"{re.escape(held)} ([6-8]\d|9[0-5]) s more at most", waits(30)), shell.out
    assert waits(0) == "", "one of them is still heard"
    one = f"{NOBODY}; 1 rollout is held by a worker that has gone silent, for"
    assert waits(100).startswith(one), "the other's message is in its queue again"
    assert waits(300) == NOBODY
    shell.client.delete(alive)
    assert waits(300) == NOBODY


def test_what_killed_workers_hold_is_found_at_the_same_expense_however_much_it_is(shell: Shell) -> None:
    shell.call(run_actions.submit, shell.config({"id": "a"}))
    now = float(shell.client.time()[0])

    def spent(held: int) -> tuple[int, int]:
        """Commands and bytes of an answer."""
        shell.client.zadd("{run:night-1}:alive", {f"{number}#0": now - 50 for number in range(held)})
        before: Any = shell.client.info("stats")
        shell.call(run_actions.status, "night-1", {}, as_json=True)
        after: Any = shell.client.info("stats")
        assert f"{held} rollouts are held by" in shell.out
        names = ("total_commands_processed", "total_net_output_bytes")
        return tuple(after[name] - before[name] for name in names)  # type: ignore[return-value]

    spent(2)
    (few, little), (many, much) = spent(2), spent(5_000)

    assert (few, much - little < 100) == (many, True)


def drained(shell: Shell, name: str) -> VMPool:
    pool = VMPool(shell.client, name)
    for number in range(2):
        pool.register(f"vm-{number}", Endpoint("127.0.0.1", {"control": 1}))
        pool.drain(f"vm-{number}")
    return pool


def test_a_run_is_refused_where_all_vms_are_drained_and_told_the_remedy(shell: Shell) -> None:
    for name, option in (("default", ""), ("other", " --pool other")):
        drained(shell, name)
        with pytest.raises(UserError) as refused:
            shell.call(run_actions.submit, shell.config({"id": "a"}, simulated={}, vm={"pool": name}))
        assert str(refused.value) == (
            f"--pool: no VM of the pool {name!r} is in service: 2 drained (`rollouts pool undrain all{option}` puts them back)"
        )
    assert not shell.run.path.exists()


def test_a_run_that_waits_for_vms_that_nobody_puts_back_says_so(shell: Shell) -> None:
    pool = VMPool(shell.client, "default")
    pool.register("vm-0", Endpoint("127.0.0.1", {"control": 1}))
    shell.call(run_actions.submit, shell.config({"id": "a"}, simulated={}))
    shell.store.claim("night-1", "a#0", {"token": "t"})

    def waits() -> str:
        shell.call(run_actions.status, "night-1", {}, as_json=True)
        return str(json.loads(shell.out)["waits_for"])

    pool.drain("vm-0")
    assert waits() == "", "nothing of it waits for a VM yet"
    pool._run("acquire", *Request("one@here other#0", 0, 60, 60, 60).words(0, False))
    assert waits() == "", "nor does what another run waits for"
    pool._run("acquire", *Request("one@here a#0", 0, 60, 60, 60).words(0, False))
    none = "no VM of the pool 'default' is in service:"
    assert waits() == f"{none} 1 drained (`rollouts pool undrain all` puts them back)"
    pool.register("vm-1", Endpoint("127.0.0.1", {"control": 1}))
    pool.quarantine("vm-1", "smoke")
    assert waits() == (
        f"{none} 1 drained (`rollouts pool undrain all` puts them back), 1 quarantined (`rollouts pool reset VM` boots one anew)"
    )
    pool.undrain("vm-0")
    assert waits() == ""


def test_without_a_run_a_status_lists_those_that_are_not_over(shell: Shell) -> None:
    def listed(*options: str) -> str:
        result = CliRunner().invoke(runs.application, ["status", *options], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        shell.err = result.stderr
        return result.stdout

    assert listed() == "Redis knows no run that is under way\n"
    assert json.loads(listed("--json")) == []
    for number, run_id in enumerate(("night-2", "night-1", "over", "odd")):
        shell.call(run_actions.submit, shell.config({"id": "a"}, run_id=run_id))
        shell.client.hset(f"{{run:{run_id}}}", "created", 1000 + number)
    shell.client.hset("{run:over}", "state", "cancelled")
    shell.client.hset("{run:odd}", "total", "many")
    shell.client.sadd("runs:active", "gone")
    presence.announce_start(shell.client, "one@here", ["rollout.simulated"])
    shell.store.claim("night-1", "a#0", {"token": "t"})
    before = {key: shell.client.dump(key) for key in shell.client.scan_iter()}

    first, second = listed().splitlines()
    assert first == "Run night-1: running: 0/1 rollouts · 1 running"
    waits = "a worker for rollout.simulated has been starting for"
    assert second.startswith(f"Run night-2: running: 0/1 rollouts · 0 running · {waits} ")
    assert shell.err == "left out: run odd: invalid literal for int() with base 10: 'many'\n"
    found = json.loads(listed("--json"))

    assert {key: shell.client.dump(key) for key in shell.client.scan_iter()} == before
    assert [one["run_id"] for one in found] == ["night-1", "night-2"]
    assert (found[0]["running"], found[0]["waits_for"]) == (1, "")
    assert found[1]["waits_for"].startswith(waits)
    assert found[1]["folder"] == str(shell.folder / "results" / "night-2")
    with pytest.raises(UserError, match=r"^--output-dir: it is for a RUN; .*rollouts list --output-dir"):
        listed("--output-dir", "x")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            run_actions.resume,
            r"^a resumed run keeps its own configuration; leave out --metric, --num-rollouts$",
        ),
        (run_actions.status, r"^--status takes no options of a run; leave out --metric, --num-rollouts$"),
        (run_actions.cancel, r"^--cancel takes no options of a run; leave out --metric, --num-rollouts$"),
    ],
)
def test_options_of_a_run_belong_to_a_new_run(shell: Shell, command: Callable[..., int], says: str) -> None:
    options = {"num_rollouts": 3, "metric": "exact_match", "output_dir": "x"}

    with pytest.raises(UserError, match=says):
        shell.call(command, "night-1", options)


def test_a_seed_that_nothing_uses_is_refused(shell: Shell) -> None:
    with pytest.raises(UserError, match=r"^--seed: nothing is drawn without --shuffle; give both, or neither$"):
        shell.call(run_actions.submit, shell.config({"id": "a"}, data={"seed": 7}), dry_run=True)
    for given in ({"seed": 7, "shuffle": True}, {"seed": 0, "shuffle": False}):
        assert shell.call(run_actions.submit, shell.config({"id": "a"}, data=given), dry_run=True) == 0


def test_a_run_that_redis_does_not_take_leaves_nothing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise redis.ConnectionError("gone for a moment")

    monkeypatch.setattr(StoredSubmission, "add_items", refuse)

    with pytest.raises(UserError, match=r"^Redis did not accept the run, so nothing was enqueued: gone for a moment$"):
        shell.call(run_actions.submit, shell.config({"id": "a"}))

    assert shell.store.state("night-1") is None
    assert not shell.run.path.exists()
    assert shell.client.llen("rollout.simulated") == 0
