"""Whether the endpoint serves the model is asked before a run is enqueued: over real HTTP, from endpoints right and odd."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.runs import asked_endpoint, model_check
from rollout_tasks.settings import settings
from tests.dribbling import dribble

MODELS = {"data": [{"id": "m-1"}, {"id": "m-2"}]}
KEY = "sk-not-to-be-seen"


def config(**options: Any) -> RunConfig:
    return RunConfig.model_validate({"env_mode": "simulated", **options})


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
        key = self.headers["Authorization"] or self.headers["x-api-key"]
        self.server.requests.append((self.command, self.path, key, body))
        status, content = self.server.answers.pop(0)
        if not status:
            self.wfile.write(content)
            return
        self.send_response(status)
        if isinstance(content, bytes) and content.startswith(b"\x1f\x8b"):
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        with suppress(ConnectionError):  # who reads no more has read enough
            self.wfile.write(content if isinstance(content, bytes) else json.dumps(content).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelEndpoint]:
    monkeypatch.setattr(asked_endpoint, "time", SimpleNamespace(sleep=lambda _seconds: None))
    server = ModelEndpoint()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(name="known")
def _known(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the environment variables about the model; by default there are none."""

    def known(**variables: str) -> None:
        for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_URL"):
            monkeypatch.setenv(name, variables.get(name, ""))
        settings.cache_clear()

    known()
    return known


def asking(endpoint: ModelEndpoint, *, name: str = "m-1", **options: Any) -> RunConfig:
    return config(model={"name": name, "base_url": endpoint.url}, **options)


def test_the_options_address_goes_before_the_environments(known: Callable[..., None]) -> None:
    own = config(model={"base_url": "http://127.0.0.1:1/v1"})

    assert model_check.model_address(config()) is None
    known(OPENAI_API_KEY=KEY)
    assert model_check.model_address(config()) == "https://api.openai.com/v1"
    known(OPENAI_API_KEY=KEY, OPENAI_BASE_URL="http://127.0.0.1:2/v1")
    assert model_check.model_address(config()) == "http://127.0.0.1:2/v1"
    assert model_check.model_address(own) == "http://127.0.0.1:1/v1"
    known(OPENAI_BASE_URL="ftp://127.0.0.1")
    with pytest.raises(UserError, match=r"^OPENAI_BASE_URL: "):
        model_check.model_address(config())
    known(OPENAI_BASE_URL="http://10.0.0.256:8000/v1")
    with pytest.raises(UserError, match=r"^OPENAI_BASE_URL: must look like http://host:port/v1$"):
        model_check.model_address(config())


def test_a_proxy_that_is_none_is_told_without_its_password(
    known: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for proxy in ("http://me:hunter2@10.0.0.256:1", "nonsense://me:hunter2@host:1", "http://me:hunter2"):
        monkeypatch.setenv("HTTP_PROXY", proxy)
        says = _told(lambda: model_check.check_model(config(model={"base_url": "http://model.example/v1"})))
        assert "HTTP_PROXY" in says
        assert "hunter2" not in says


def test_without_an_endpoint_a_run_says_what_to_set(known: Callable[..., None]) -> None:
    with pytest.raises(UserError, match=r"^no model is configured: set OPENAI_API_KEY, or OPENAI_BASE_URL"):
        model_check.check_model(config())


def test_an_endpoint_that_serves_the_model_is_filled_in(endpoint: ModelEndpoint, known: Callable[..., None]) -> None:
    known(OPENAI_API_KEY=f" {KEY}\n", OPENAI_BASE_URL=endpoint.url)
    endpoint.answers = [(200, MODELS)]

    checked = model_check.check_model(config(model={"name": "m-2"}))

    assert (checked.model.base_url, checked.model.name, checked.model.scripted) == (endpoint.url, "m-2", False)
    assert endpoint.requests == [("GET", "/v1/models", f"Bearer {KEY}", None)]


def test_the_scripted_model_is_known_by_its_owner(endpoint: ModelEndpoint, known: Callable[..., None]) -> None:
    endpoint.answers = [(200, {"data": [{"id": "anything", "owned_by": "scripted"}]})]

    assert model_check.check_model(asking(endpoint)).model.scripted
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

    assert _told(lambda: model_check.check_model(asking(endpoint, **options))) == says.format(url=endpoint.url)


def test_at_most_eight_served_models_are_named(endpoint: ModelEndpoint, known: Callable[..., None]) -> None:
    endpoint.answers = [(200, {"data": [{"id": f"x-{n}"} for n in range(8)]})]
    eight = ", ".join(f"x-{n}" for n in range(8))
    assert _told(lambda: model_check.check_model(asking(endpoint))).endswith(f"it serves {eight}")

    endpoint.answers = [(200, {"data": [{"id": f"x-{n}"} for n in range(9)]})]
    assert _told(lambda: model_check.check_model(asking(endpoint))).endswith(f"it serves {eight}, ...")


def test_long_names_of_models_are_cut(endpoint: ModelEndpoint, known: Callable[..., None]) -> None:
    endpoint.answers = [(200, {"data": [{"id": "x" * 10_000}]})]

    assert _told(lambda: model_check.check_model(asking(endpoint))).endswith("it serves " + "x" * 100)


def test_a_key_among_the_names_of_models_is_not_shown(endpoint: ModelEndpoint, known: Callable[..., None]) -> None:
    known(OPENAI_API_KEY=KEY)
    endpoint.answers = [(200, {"data": [{"id": "x" * 90 + KEY}]})] * 2

    assert _told(lambda: model_check.check_model(asking(endpoint))).endswith("it serves " + "x" * 90 + "***")
    assert asked_endpoint.served_models(endpoint.url) == "serves " + "x" * 90 + "***"


@pytest.mark.parametrize("first", [[], [(404, "")]], ids=["/models", "/chat/completions"])
def test_a_key_that_is_sent_back_as_a_broken_header_is_not_shown(
    endpoint: ModelEndpoint, known: Callable[..., None], first: list[tuple[int, Any]]
) -> None:
    known(OPENAI_API_KEY=KEY)
    endpoint.answers = [*first, *[(0, b"HTTP/1.1 200 OK\r\nBearer " + KEY.encode() + b"\r\n\r\n")] * 3]

    says = _told(lambda: model_check.check_model(asking(endpoint)))

    assert "cannot be reached: illegal header line: bytearray(b'Bearer ***')" in says


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([(200, {"data": []})], ""),
        ([(503, ""), (429, ""), (200, MODELS)], ""),
        ([(503, ""), (500, ""), (429, "")], "the model endpoint {url} answers HTTP 429 (3 tries)"),
        ([(401, "")], "the model endpoint {url} refuses the key (HTTP 401): check OPENAI_API_KEY"),
        ([(403, "")], "the model endpoint {url} refuses the key (HTTP 403): check OPENAI_API_KEY"),
        ([(400, "")], "the model endpoint {url} answers HTTP 400 at /models"),
        ([(200, b"<html>")], "{url} is not an OpenAI-compatible endpoint: /models did not return a list of models"),
        (
            [(200, {"models": []})],
            "{url} is not an OpenAI-compatible endpoint: /models did not return a list of models",
        ),
        ([(200, {"data": 7})], "{url} is not an OpenAI-compatible endpoint: /models did not return a list of models"),
        (
            [(200, b"[" * 100_000)],
            "{url} is not an OpenAI-compatible endpoint: /models did not return a list of models",
        ),
        ([(200, b" " * (17 << 20))], "the model endpoint {url} answers /models with more than 16 MiB"),
        ([(200, gzip.compress(bytes(17 << 20)))], "the model endpoint {url} answers /models with more than 16 MiB"),
        (
            [(404, ""), (200, b" " * (17 << 20))],
            "the model endpoint {url} answers /chat/completions with more than 16 MiB",
        ),
        ([(200, gzip.compress(json.dumps(MODELS).encode()))], ""),
        ([(404, ""), (200, {})], ""),
        ([(404, ""), (401, "")], "the model endpoint {url} refuses the key (HTTP 401): check OPENAI_API_KEY"),
        (
            [(404, ""), (400, "")],
            "the model endpoint {url} answers HTTP 404 at /models and HTTP 400 at /chat/completions:"
            " does the address end in /v1?",
        ),
        (
            [(404, ""), (503, "")],
            "the model endpoint {url} answers HTTP 404 at /models and HTTP 503 at /chat/completions",
        ),
    ],
)
def test_what_an_endpoint_answers_is_understood(
    endpoint: ModelEndpoint, known: Callable[..., None], answers: list[tuple[int, Any]], says: str
) -> None:
    endpoint.answers = list(answers)

    assert _told(lambda: model_check.check_model(asking(endpoint))) == says.format(url=endpoint.url)
    assert len(endpoint.requests) == len(answers)


def test_an_endpoint_without_models_is_asked_for_one_short_answer(
    endpoint: ModelEndpoint, known: Callable[..., None]
) -> None:
    known(OPENAI_API_KEY=KEY)
    endpoint.answers = [(404, ""), (200, {})]

    checked = model_check.check_model(asking(endpoint, name="m-9"))

    assert checked.model.name == "m-9"
    method, path, login, body = endpoint.requests[1]
    assert (method, path, login) == ("POST", "/v1/chat/completions", f"Bearer {KEY}")
    assert (body["model"], body["max_completion_tokens"]) == ("m-9", 16)


def test_an_endpoint_that_is_not_there_is_asked_three_times(
    known: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(asked_endpoint, "time", SimpleNamespace(sleep=pauses.append))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"

        says = _told(lambda: model_check.check_model(config(model={"base_url": address})))

    assert says.startswith(f"the model endpoint {address} cannot be reached: ")
    assert says.endswith("(3 tries)")
    assert len(pauses) == 2
    assert all(0 <= pause <= 2 for pause in pauses)


def test_a_silent_endpoint_is_asked_once(known: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_endpoint, "_ANSWER_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"

        says = _told(lambda: model_check.check_model(config(model={"base_url": address})))

    assert says == f"the model endpoint {address} gave no answer within 0.2 s"


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b" "),
        (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    ],
    ids=["a body", "interim answers", "a header"],
)
def test_an_answer_that_does_not_end_is_left(
    known: Callable[..., None], monkeypatch: pytest.MonkeyPatch, head: bytes, piece: bytes
) -> None:
    monkeypatch.setattr(asked_endpoint, "_ANSWER_SECONDS", 0.5)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        thread = threading.Thread(target=dribble, args=(listening, head, piece))
        thread.start()

        says = _told(lambda: model_check.check_model(config(model={"base_url": address})))

        thread.join()
    assert says == f"the model endpoint {address} gave no answer within 0.5 s"


@pytest.mark.parametrize("key", ["sk-\u201cquoted\u201d", "sk-two\nlines"])
def test_a_key_that_cannot_be_one_is_told_and_not_shown(
    endpoint: ModelEndpoint, known: Callable[..., None], key: str
) -> None:
    known(OPENAI_API_KEY=key)

    says = _told(lambda: model_check.check_model(asking(endpoint)))

    assert says.startswith("OPENAI_API_KEY: contains characters that no key has")
    assert "sk-" not in says
    assert endpoint.requests == []


def test_the_scripted_model_needs_a_script_for_every_item() -> None:
    scripted = Item("with", "?", metadata={"script": {"*": [{"text": "42"}]}})
    without = [Item("a", "?"), Item("b", "?")]

    model_check.check_scripts(config(), [scripted])
    assert _told(lambda: model_check.check_scripts(config(), [scripted, *without])) == (
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


def test_anthropics_api_has_a_login_of_its_own(endpoint: ModelEndpoint, known: Callable[..., None]) -> None:
    known(OPENAI_API_KEY=KEY)
    endpoint.answers = [(200, MODELS), (200, MODELS)]
    for api in ("messages", "chat"):
        model_check.check_model(config(model={"name": "m-1", "base_url": endpoint.url, "api": api}))

    assert [login for _, _, login, _ in endpoint.requests] == [KEY, f"Bearer {KEY}"]


@pytest.mark.parametrize(
    ("served", "says"),
    [
        (
            {"max_model_len": 8192},
            "--agent: the profile mine needs a context of 9000 tokens, and {url} serves 'm-1' with 8192",
        ),
        ({"max_model_len": 9000}, ""),
        ({"max_model_len": "8192"}, ""),
        ({}, ""),
    ],
)
def test_a_context_that_is_too_short_for_the_agent(endpoint: ModelEndpoint, served: dict[str, Any], says: str) -> None:
    endpoint.answers = [(200, {"data": [{"id": "m-1", **served}, {"id": "m-2", "max_model_len": 1}]})]
    asked = asking(endpoint).model_copy(update={"profile": {"name": "mine", "context_length": 9000}})
    said = _told(lambda: model_check.check_model(asked))

    assert said.startswith(says.format(url=endpoint.url))
    assert bool(said) == bool(says)


PROFILED = {"profile": {"name": "mine"}}


@pytest.mark.parametrize(
    ("api", "path", "most", "prompt"),
    [
        ("chat", "/v1/chat/completions", "max_completion_tokens", "messages"),
        ("responses", "/v1/responses", "max_output_tokens", "input"),
        ("messages", "/v1/messages", "max_tokens", "messages"),
    ],
)
def test_an_endpoint_without_models_is_asked_in_the_runs_own_api(
    endpoint: ModelEndpoint, known: Callable[..., None], api: str, path: str, most: str, prompt: str
) -> None:
    known(OPENAI_API_KEY=KEY)
    endpoint.answers = [(404, ""), (200, {})]
    model_check.check_model(config(model={"name": "m-9", "base_url": endpoint.url, "api": api}))

    _, asked, login, body = endpoint.requests[1]
    assert (asked, body) == (path, {"model": "m-9", most: 16, prompt: [{"role": "user", "content": "Hi"}]})
    assert login == (KEY if api == "messages" else f"Bearer {KEY}")


@pytest.mark.parametrize(
    ("api", "answers", "refused"),
    [
        ("messages", [(200, MODELS), (200, {})], False),
        ("messages", [(200, MODELS), (529, "")], False),
        ("messages", [(200, MODELS), (404, "")], True),
        ("chat", [(200, MODELS)], True),
    ],
)
def test_anthropics_api_may_know_a_model_by_a_name_that_it_does_not_list(
    endpoint: ModelEndpoint, api: str, answers: list[tuple[int, Any]], refused: bool
) -> None:
    endpoint.answers = list(answers)
    said = _told(lambda: model_check.check_model(config(model={"name": "m-9", "base_url": endpoint.url, "api": api})))

    assert said == (f"--model: {endpoint.url} does not serve 'm-9'; it serves m-1, m-2" if refused else "")
    assert endpoint.answers == []


@pytest.mark.parametrize(
    ("api", "key", "says"),
    [
        (
            "messages",
            "",
            "--agent mine calls its model through Anthropic's Messages API: name its endpoint, as in --base-url https://api.an",
        ),
        (
            "messages",
            KEY,
            "--agent mine calls its model through Anthropic's Messages API: name its endpoint, as in --base-url https://api.an",
        ),
        ("chat", "", "--agent mine: the scripted model cannot speak its protocol: name an endpoint, --base-url"),
    ],
)
def test_an_agent_with_a_profile_needs_an_endpoint_that_speaks_its_protocol(
    known: Callable[..., None], api: str, key: str, says: str
) -> None:
    known(OPENAI_API_KEY=key)
    asked = config(model={"api": api}, **PROFILED)

    assert _told(lambda: model_check.check_model(asked)).startswith(says)
    assert _told(lambda: model_check.check_scripts(asked, [])).startswith(says)


def test_the_scripted_model_is_no_model_for_an_agent_with_a_profile(endpoint: ModelEndpoint) -> None:
    endpoint.answers = [(200, {"data": [{"id": "m-1", "owned_by": "scripted"}]})]

    assert "the scripted model cannot speak its protocol" in _told(
        lambda: model_check.check_model(asking(endpoint, **PROFILED))
    )


def test_what_anthropics_endpoint_serves_is_said(endpoint: ModelEndpoint, known: Callable[..., None]) -> None:
    known(OPENAI_API_KEY=KEY)
    endpoint.answers = [(401, ""), (200, MODELS)]

    assert asked_endpoint.served_models(endpoint.url) == "serves m-1, m-2"
    assert [login for _, _, login, _ in endpoint.requests] == [f"Bearer {KEY}", KEY]


def two_models(endpoint: ModelEndpoint, role: str) -> RunConfig:
    return config(model={"name": "m-1", "base_url": endpoint.url}, model_roles=[role])


@pytest.mark.parametrize("keys", ["", "grounder:sk-grounder"])
def test_a_further_model_is_asked_for_at_its_own_endpoint_with_its_own_key(
    endpoint: ModelEndpoint, known: Callable[..., None], keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLOUT_ROLE_KEYS", keys)
    known(OPENAI_API_KEY=KEY)
    endpoint.answers = [(200, MODELS), (200, MODELS)]

    checked = model_check.check_model(two_models(endpoint, f"grounder=m-2,base-url={endpoint.url}/other"))

    assert [role.model.base_url for role in checked.model_roles] == [f"{endpoint.url}/other"]
    its_own = "Bearer sk-grounder" if keys else None
    assert endpoint.requests == [
        ("GET", "/v1/models", f"Bearer {KEY}", None),
        ("GET", "/v1/other/models", its_own, None),
    ]


def test_a_further_model_without_an_endpoint_is_at_the_runs_own(
    endpoint: ModelEndpoint, known: Callable[..., None]
) -> None:
    known(OPENAI_API_KEY=KEY)
    endpoint.answers = [(200, MODELS), (200, MODELS)]

    checked = model_check.check_model(two_models(endpoint, "grounder=m-2"))

    assert [role.model.base_url for role in checked.model_roles] == [None]  # so that both move with a resume
    assert [model.base_url for model in checked.models] == [endpoint.url] * 2
    assert [login for _, _, login, _ in endpoint.requests] == [f"Bearer {KEY}"] * 2


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((200, MODELS), "{url} does not serve 'm-9'; it serves m-1, m-2"),
        (
            (401, {}),
            "the model endpoint {url} refuses the key (HTTP 401): none was sent: put it into ROLLOUT_ROLE_KEYS",
        ),
        ((200, b"<html>"), "{url} is not an OpenAI-compatible endpoint: /models did not return a list of models"),
        ((500, {}), "the model endpoint {url} answers HTTP 500 (3 tries)"),
    ],
    ids=["another model", "no key", "no endpoint", "broken"],
)
def test_what_is_wrong_with_a_further_model_names_it(
    endpoint: ModelEndpoint, answer: tuple[int, Any], says: str
) -> None:
    endpoint.answers = [(200, MODELS), *[answer] * 3]
    told = _told(lambda: model_check.check_model(two_models(endpoint, f"grounder=m-9,base-url={endpoint.url}/other")))
    assert told.startswith(f"--model-role grounder: {says.format(url=f'{endpoint.url}/other')}")
