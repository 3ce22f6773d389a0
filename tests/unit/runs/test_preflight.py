"""What is checked before a run is enqueued: names, items, VMs, the folder, and the model's endpoint over real HTTP."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from benchmark.items import Item
from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.environments import py
from rollout_tasks.errors import UserError
from rollout_tasks.runs import preflight
from rollout_tasks.settings import settings
from vm_pool.pool import VMPool
from vm_pool.states import Endpoint, VMState

MODELS = {"data": [{"id": "m-1"}, {"id": "m-2"}]}
KEY = "sk-not-to-be-seen"


def config(**options: Any) -> RunConfig:
    return RunConfig.model_validate({"env_mode": "simulated", **options})


def item(name: str = "one", **env_config: Any) -> Item:
    return Item(name, "?", env_config=env_config)


@pytest.mark.parametrize(
    ("options", "env_config", "says"),
    [
        ({"metric": "exact_mach"}, {}, "--metric: unknown metric 'exact_mach'"),
        ({"agent": "nobody"}, {}, "--agent: unknown agent 'nobody'"),
        ({"env_mode": "nowhere"}, {}, "--env-mode: unknown environment 'nowhere'"),
        ({}, {"env_mode": "nowhere"}, "item 'one': env_config.env_mode: unknown environment 'nowhere'"),
        ({}, {"env_mode": 7}, "item 'one': env_config.env_mode must be text, got 7"),
    ],
)
def test_an_unknown_name_is_told_with_its_place(options: dict[str, Any], env_config: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as told:
        preflight.check_names(config(**options), [item(**env_config)])
    assert str(told.value).startswith(says)


def test_the_environments_of_all_items_are_found() -> None:
    items = [item("one"), item("two", env_mode="math"), item("three", env_mode="math")]

    assert preflight.check_names(config(agent="simulated"), items) == {"simulated", "math"}


def osworld_item(name: str, *, right: bool) -> Item:
    evaluator = {"func": "exact_match", "result": {"type": "vm_command_line", "command": "true"}}
    task = {"id": name, "snapshot": "os", "instruction": "Do it.", "config": [], "evaluator": evaluator}
    return Item(name, "Do it.", metadata=task if right else {**task, "evaluator": {"func": 7}})


def test_a_wrong_item_is_refused_unless_wrong_ones_may_be_left_out() -> None:
    items = [osworld_item("bad", right=False), osworld_item("good", right=True)]
    strict = config(env_mode="osworld")
    lenient = config(env_mode="osworld", data={"skip_invalid": True})

    with pytest.raises(UserError, match=r"^item 'bad': "):
        preflight.check_items(strict, items)
    right, wrong = preflight.check_items(lenient, items)
    assert [found.id for found in right] == ["good"]
    assert len(wrong) == 1
    assert wrong[0].startswith("item 'bad': ")
    with pytest.raises(UserError, match=r"^none of the 1 items is valid, the first because: item 'bad': "):
        preflight.check_items(lenient, items[:1])


def test_needs_are_told_by_environment_and_only_where_there_are_any() -> None:
    items = [osworld_item("desktop", right=True), item("light", env_mode="math")]

    assert list(preflight.needs(config(env_mode="osworld"), items)) == ["osworld"]
    assert preflight.needs(config(), [item()]) == {}
    assert preflight.unmet(config(), [item()]) == []


def test_what_items_will_not_get_is_told_for_every_environment() -> None:
    wish = Item("wishes", "Do it.", metadata={**osworld_item("wishes", right=True).metadata, "proxy": True})

    sentences = preflight.unmet(
        config(), [item(), Item(wish.id, "?", env_config={"env_mode": "osworld"}, metadata=wish.metadata)]
    )

    assert len(sentences) == 1
    assert "proxy" in sentences[0]


@pytest.mark.parametrize(
    ("options", "items", "needed"),
    [
        ({}, [item()], True),
        ({}, [item(needs_vm=False)], False),
        ({}, [item("one", needs_vm=False), item("two")], True),
        ({"simulated": {"needs_vm": False}}, [item()], False),
        ({"env_mode": "math"}, [item()], False),
    ],
)
def test_whether_vms_are_needed_is_for_the_items_to_say(
    options: dict[str, Any], items: list[Item], needed: bool
) -> None:
    assert preflight.needs_vm(config(**options), items) is needed


def test_a_network_is_asked_for_where_it_can_be_given(redis_url: str) -> None:
    asking = {"guest_network": "internet", "provider_name": "docker"}

    with pytest.raises(UserError, match=r"^--guest-network: VMs of the provider docker have whatever network it gives"):
        preflight.check_provider(config(vm=asking), ["simulated"])
    preflight.check_provider(config(vm={**asking, "provider_name": "local"}), ["simulated"])
    client = redis.Redis.from_url(redis_url)
    with pytest.raises(UserError, match=r"^--guest-network: a pool's hosts say where its VMs may go"):
        preflight.check_pool(config(vm=asking), client)
    client.close()
    with pytest.raises(UserError, match=r"^--guest-network: .*'a b' is no host"):
        parse_config({"vm": {"guest_network": "a b"}})


@pytest.mark.parametrize(
    ("options", "environments", "needed"),
    [
        ({}, ["simulated"], False),
        ({}, ["simulated", "math"], True),
        ({"agent": "tool_calling"}, ["simulated"], True),
        ({"agent": "simulated"}, ["math"], False),
        ({"metric": "llm_judgement"}, ["simulated"], True),
    ],
)
def test_whether_a_model_is_asked_is_for_agents_and_metric_to_say(
    options: dict[str, Any], environments: list[str], needed: bool
) -> None:
    assert preflight.needs_model(config(**options), environments) is needed


def test_simulated_vms_have_no_desktop() -> None:
    simulated = config(vm={"provider_name": "simulated"})

    preflight.check_provider(simulated, ["math", "simulated"])
    preflight.check_provider(config(vm={"provider_name": "local"}), ["osworld"])
    with pytest.raises(UserError, match=r"^--provider-name: simulated VMs have no desktop, which --env-mode osworld"):
        preflight.check_provider(simulated, ["math", "osworld"])


def test_this_machine_is_asked_for_its_vms_only_where_items_need_some() -> None:
    unknown = {"vm": {"provider_name": "no-such-provider"}}

    preflight.check_here(config(**unknown), [item(needs_vm=False)], ["simulated"])
    with pytest.raises(UserError, match=r"^--provider-name: "):
        preflight.check_here(config(**unknown), [item()], ["simulated"])


def test_an_environment_that_this_machine_cannot_serve_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    py._reason_against_isolation.cache_clear()  # it is asked once per process
    try:
        with pytest.raises(UserError, match=r"^--env-mode py: "):
            preflight.check_here(config(), [item(needs_vm=False)], ["math", "py"])
    finally:
        py._reason_against_isolation.cache_clear()


def test_a_pool_needs_a_vm_that_is_not_stopped(redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    wanted = config(vm={"pool": "desktops", "provider_name": "local"})
    pool = VMPool(client, "desktops")

    with pytest.raises(UserError, match=r"^--pool: the pool 'desktops' has no VMs; start some with .*--provider local"):
        preflight.check_pool(wanted, client)
    preflight.check_pool(config(vm={"use_pool": False}), client)
    pool.register("vm-0", Endpoint("127.0.0.1", {"control": 1}))
    preflight.check_pool(wanted, client)
    pool.move("vm-0", set(VMState), VMState.STOPPED)
    with pytest.raises(UserError, match=r"has no VMs"):
        preflight.check_pool(wanted, client)


def test_a_folder_that_cannot_be_made_is_told_before_anything_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "there").mkdir()

    preflight.check_output_dir(tmp_path / "not" / "yet" / "run")
    with pytest.raises(UserError, match=f"^--run-id: {tmp_path}/there exists already; take another name"):
        preflight.check_output_dir(tmp_path / "there")
    with pytest.raises(UserError, match=f"^--output-dir: {tmp_path}/file is not a folder$"):
        preflight.check_output_dir(tmp_path / "file" / "below" / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "there"]


def test_a_folder_that_nobody_may_write_to_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, int]] = []

    def refuse(path: Path, mode: int) -> bool:  # root may write everywhere
        asked.append((path, mode))
        return False

    monkeypatch.setattr(preflight.os, "access", refuse)

    with pytest.raises(UserError, match=f"^--output-dir: {tmp_path} cannot be written to$"):
        preflight.check_output_dir(tmp_path / "not" / "yet")
    assert asked == [(tmp_path, os.W_OK | os.X_OK)]


class ModelEndpoint(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, Any]] = []
        self.requests: list[tuple[str, str, str | None, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: ModelEndpoint

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def _answer(self, body: Any) -> None:
        self.server.requests.append((self.command, self.path, self.headers["Authorization"], body))
        status, content = self.server.answers.pop(0)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(content if isinstance(content, bytes) else json.dumps(content).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelEndpoint]:
    monkeypatch.setattr(preflight, "time", SimpleNamespace(sleep=lambda _seconds: None))
    server = ModelEndpoint()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(name="known")
def _known(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Sets the environment variables about the model; by default there are none."""

    def known(**variables: str) -> None:
        for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_URL"):
            monkeypatch.setenv(name, variables.get(name, ""))
        settings.cache_clear()

    known()
    yield known
    settings.cache_clear()


def asking(endpoint: ModelEndpoint, *, name: str = "m-1", **options: Any) -> RunConfig:
    return config(model={"name": name, "base_url": endpoint.url}, **options)


def test_the_options_address_goes_before_the_environments(known: Callable[..., None]) -> None:
    own = config(model={"base_url": "http://127.0.0.1:1/v1"})

    assert preflight.model_address(config()) is None
    known(OPENAI_API_KEY=KEY)
    assert preflight.model_address(config()) == preflight.OPENAI_BASE_URL
    known(OPENAI_API_KEY=KEY, OPENAI_BASE_URL="http://127.0.0.1:2/v1")
    assert preflight.model_address(config()) == "http://127.0.0.1:2/v1"
    assert preflight.model_address(own) == "http://127.0.0.1:1/v1"
    known(OPENAI_BASE_URL="ftp://127.0.0.1")
    with pytest.raises(UserError, match=r"^OPENAI_BASE_URL: "):
        preflight.model_address(config())


def test_without_an_endpoint_a_run_says_what_to_set(known: Callable[..., None]) -> None:
    with pytest.raises(UserError, match=r"^no model is configured: set OPENAI_API_KEY, or OPENAI_BASE_URL"):
        preflight.check_model(config())


def test_an_endpoint_that_serves_the_model_is_filled_in(endpoint: ModelEndpoint, known: Callable[..., None]) -> None:
    known(OPENAI_API_KEY=f" {KEY}\n", OPENAI_BASE_URL=endpoint.url)
    endpoint.answers = [(200, MODELS)]

    checked = preflight.check_model(config(model={"name": "m-2"}))

    assert (checked.model.base_url, checked.model.name, checked.model.scripted) == (endpoint.url, "m-2", False)
    assert endpoint.requests == [("GET", "/v1/models", f"Bearer {KEY}", None)]


def test_the_scripted_model_is_known_by_its_owner(endpoint: ModelEndpoint, known: Callable[..., None]) -> None:
    endpoint.answers = [(200, {"data": [{"id": "anything", "owned_by": "scripted"}]})]

    assert preflight.check_model(asking(endpoint)).model.scripted
    assert endpoint.requests[0][2] is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "m-3"}, "--model: {url} does not serve 'm-3'; it serves m-1, m-2"),
        (
            {"metric": "llm_judgement", "judge_model": "j"},
            "--judge-model: {url} does not serve 'j'; it serves m-1, m-2",
        ),
        ({"metric": "exact_match", "judge_model": "j"}, ""),
        ({"metric": "llm_judgement", "judge_model": "m-2"}, ""),
    ],
)
def test_a_model_that_is_not_served_is_told(
    endpoint: ModelEndpoint, known: Callable[..., None], options: dict[str, Any], says: str
) -> None:
    endpoint.answers = [(200, MODELS)]

    assert _told(lambda: preflight.check_model(asking(endpoint, **options))) == says.format(url=endpoint.url)


def test_at_most_eight_served_models_are_named(endpoint: ModelEndpoint, known: Callable[..., None]) -> None:
    endpoint.answers = [(200, {"data": [{"id": f"x-{n}"} for n in range(8)]})]
    eight = ", ".join(f"x-{n}" for n in range(8))
    assert _told(lambda: preflight.check_model(asking(endpoint))).endswith(f"it serves {eight}")

    endpoint.answers = [(200, {"data": [{"id": f"x-{n}"} for n in range(9)]})]
    assert _told(lambda: preflight.check_model(asking(endpoint))).endswith(f"it serves {eight}, ...")


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([(200, {"data": []})], ""),
        ([(503, ""), (429, ""), (200, MODELS)], ""),
        ([(503, ""), (500, ""), (429, "")], "the model endpoint {url} answers HTTP 429 (3 tries)"),
        ([(401, "")], "the model endpoint {url} refuses the key (HTTP 401): check OPENAI_API_KEY"),
        ([(403, "")], "the model endpoint {url} refuses the key (HTTP 403): check OPENAI_API_KEY"),
        ([(400, "")], "the model endpoint {url} answers HTTP 400 at /models"),
        ([(200, b"<html>")], "{url} is no OpenAI-compatible endpoint: /models answers no list of models"),
        ([(200, {"models": []})], "{url} is no OpenAI-compatible endpoint: /models answers no list of models"),
        ([(200, {"data": 7})], "{url} is no OpenAI-compatible endpoint: /models answers no list of models"),
        ([(404, ""), (200, {})], ""),
        ([(404, ""), (401, "")], "the model endpoint {url} refuses the key (HTTP 401): check OPENAI_API_KEY"),
        (
            [(404, ""), (400, "")],
            "the model endpoint {url} answers HTTP 404 at /models and HTTP 400 at /chat/completions:"
            " does the address end in /v1?",
        ),
    ],
)
def test_what_an_endpoint_answers_is_understood(
    endpoint: ModelEndpoint, known: Callable[..., None], answers: list[tuple[int, Any]], says: str
) -> None:
    endpoint.answers = list(answers)

    assert _told(lambda: preflight.check_model(asking(endpoint))) == says.format(url=endpoint.url)
    assert len(endpoint.requests) == len(answers)


def test_an_endpoint_without_models_is_asked_for_one_short_answer(
    endpoint: ModelEndpoint, known: Callable[..., None]
) -> None:
    known(OPENAI_API_KEY=KEY)
    endpoint.answers = [(404, ""), (200, {})]

    checked = preflight.check_model(asking(endpoint, name="m-9"))

    assert checked.model.name == "m-9"
    method, path, login, body = endpoint.requests[1]
    assert (method, path, login) == ("POST", "/v1/chat/completions", f"Bearer {KEY}")
    assert (body["model"], body["max_completion_tokens"]) == ("m-9", 16)


def test_an_endpoint_that_is_not_there_is_asked_three_times(
    known: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(preflight, "time", SimpleNamespace(sleep=pauses.append))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"

        says = _told(lambda: preflight.check_model(config(model={"base_url": address})))

    assert says.startswith(f"the model endpoint {address} cannot be reached: ")
    assert says.endswith("(3 tries)")
    assert pauses == [0.5, 1.0]


def test_a_silent_endpoint_is_asked_once(known: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_ANSWER_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"

        says = _told(lambda: preflight.check_model(config(model={"base_url": address})))

    assert says == f"the model endpoint {address} gave no answer within 0.2 s"


@pytest.mark.parametrize("key", ["sk-\u201cquoted\u201d", "sk-two\nlines"])
def test_a_key_that_cannot_be_one_is_told_and_not_shown(
    endpoint: ModelEndpoint, known: Callable[..., None], key: str
) -> None:
    known(OPENAI_API_KEY=key)

    says = _told(lambda: preflight.check_model(asking(endpoint)))

    assert says.startswith("OPENAI_API_KEY: holds characters that no key has")
    assert "sk-" not in says
    assert endpoint.requests == []


def test_the_scripted_model_needs_a_script_for_every_item() -> None:
    scripted = Item("with", "?", metadata={"script": {"*": [{"text": "42"}]}})
    without = [Item("a", "?"), Item("b", "?")]

    preflight.check_scripts([scripted])
    assert _told(lambda: preflight.check_scripts([scripted, *without])) == (
        "no model is configured, and the scripted model has no script for 2 of 3 items"
        " (the first is 'a'): set OPENAI_API_KEY, or OPENAI_BASE_URL (--base-url)"
    )


def _told(check: Callable[[], object]) -> str:
    """The refusal's sentence; empty when there is none."""
    try:
        check()
    except UserError as refusal:
        return str(refusal)
    return ""
