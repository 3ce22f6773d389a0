"""`rollouts model ask`: one request over real HTTP, to the scripted model, to a pool of it, or to nobody."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import redis

from rollout_tasks.cli import model, program
from rollout_tasks.cli.question import LARGEST_PICTURE
from rollout_tasks.models.pool.replicas import Replicas, ReplicaState
from rollout_tasks.models.scripted.process import ScriptedModelProcess
from rollout_tasks.settings import settings
from tests.conftest import free_port
from tests.unit.agents.chat_endpoint import ChatEndpoint, said

QUESTION = "How much is 6 * 7?"
ANSWER = "It is 42."
KEY = "sk-of-the-scripted-model"
BEGINNINGS = {
    "png": b"\x89PNG\r\n\x1a\n",
    "jpeg": b"\xff\xd8\xff\xe0",
    "webp": b"RIFF\n\x00\x00\x00WEBP",
    "gif": b"GIF89a",
}


class Done(NamedTuple):
    code: int
    stdout: str
    stderr: str


Ask = Callable[..., Done]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs the command with no variables but those that a test sets; no Redis is on this machine unless it says so."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_URL", "ROLLOUT_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")

    def ask(*words: str) -> Done:
        settings.cache_clear()
        monkeypatch.setattr("sys.argv", ["model", "ask", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            program.run(model.application)
        captured = capsys.readouterr()
        return Done(int(ended.value.code or 0), captured.out, captured.err)

    return ask


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    items = tmp_path_factory.mktemp("scripted") / "items.jsonl"
    items.write_text(json.dumps({"id": "i", "question": QUESTION, "answer": "42", "script": [{"text": ANSWER}]}))
    with ScriptedModelProcess(items, api_key=KEY) as process:
        yield process.url


@pytest.fixture
def endpoint() -> Iterator[ChatEndpoint]:
    made = ChatEndpoint()
    yield made
    made.close()


@pytest.fixture
def pool(redis_url: str, scripted: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replicas]:
    """A pool whose one replica is the scripted model."""
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    replicas = Replicas(client, "policy")
    replicas.register(
        "gpu-1:8000", "first", base_url=scripted, model="m", weight_version="step-7", host="h", state=ReplicaState.READY
    )
    yield replicas
    client.close()


def screen(folder: Path, kind: str = "png") -> Path:
    path = folder / "screen"
    path.write_bytes(BEGINNINGS[kind] + b"the rest")
    return path


def test_the_scripted_model_is_asked_about_a_picture(
    ask: Ask, scripted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    done = ask("m", QUESTION, "--picture", str(screen(tmp_path)), "--base-url", scripted)

    assert (done.code, done.stdout) == (0, f"{ANSWER}\n")
    assert " answered in " in done.stderr
    assert scripted in done.stderr
    assert done.stderr.count("\n") == 1


def test_json_has_what_it_took(ask: Ask, scripted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", scripted)

    done = ask("m", QUESTION, "--json")

    told = json.loads(done.stdout)
    assert (done.code, told["answer"], told["finish_reason"], told["model"]) == (0, ANSWER, "stop", "m")
    assert told["prompt_tokens"] > 0
    assert told["completion_tokens"] > 0
    assert told["seconds"] > 0
    assert (told["endpoint"], told["pool"], told["replica"]) == (scripted, None, None)


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_a_picture_goes_before_the_words(ask: Ask, endpoint: ChatEndpoint, tmp_path: Path, kind: str) -> None:
    endpoint.will(said(ANSWER))
    path = screen(tmp_path, kind)

    assert ask("m", "What is it?", "--picture", str(path), "--base-url", endpoint.url).code == 0

    (body,) = endpoint.bodies
    picture, words = body["messages"][0]["content"]
    head, _, encoded = picture["image_url"]["url"].partition(",")
    assert (body["model"], body["messages"][0]["role"], len(body["messages"])) == ("m", "user", 1)
    assert words == {"type": "text", "text": "What is it?"}
    assert (head, b64decode(encoded)) == (f"data:image/{kind};base64", path.read_bytes())


@pytest.mark.parametrize("named_by", ["--redis-url", "REDIS_URL"])
def test_a_pool_says_which_replica_answered(
    ask: Ask, pool: Replicas, redis_url: str, monkeypatch: pytest.MonkeyPatch, named_by: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")  # a pool comes first
    options = ["--redis-url", redis_url] if named_by == "--redis-url" else []
    if not options:
        monkeypatch.setenv("REDIS_URL", redis_url)

    done, told = ask("policy", QUESTION, *options), json.loads(ask("policy", QUESTION, *options, "--json").stdout)

    assert (done.code, done.stdout) == (0, f"{ANSWER}\n")
    assert done.stderr.endswith(" by replica gpu-1:8000 of model pool policy with the weights step-7\n")
    assert (told["pool"], told["replica"], told["endpoint"]) == ("policy", "gpu-1:8000", None)
    assert (told["weight_version_at_start"], told["weight_version_at_end"]) == ("step-7", "step-7")
    assert [one.in_flight for one in pool.all()] == [0]


def test_a_pool_without_a_replica_that_takes_calls_says_so(
    ask: Ask, pool: Replicas, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (replica,) = pool.all()
    pool.change(replica, state=ReplicaState.DRAINING)

    done = ask("policy", QUESTION, "--redis-url", redis_url)

    assert (done.code, done.stdout) == (2, "")
    assert done.stderr == "error: model pool policy has no replica that takes calls: 1 is draining\n"


def test_who_is_neither_pool_nor_model_is_said(ask: Ask, redis_url: str) -> None:
    unknown, nowhere = ask("policy", QUESTION, "--redis-url", redis_url), ask("policy", QUESTION)
    hub = ask("Qwen/Qwen3-VL-8B-Instruct", QUESTION, "--redis-url", redis_url)

    assert {one.code for one in (unknown, nowhere, hub)} == {2}
    neither = "is neither a pool nor a model whose endpoint is known"
    assert f"policy {neither}: model pool policy has no replica; --base-url or OPENAI_BASE_URL" in unknown.stderr
    assert f"policy {neither}: Redis at 127.0.0.1:" in nowhere.stderr
    assert f"error: MODEL-OR-POOL: Qwen/Qwen3-VL-8B-Instruct {neither}: " in hub.stderr


def test_a_wrong_key_and_an_outage_are_one_sentence(ask: Ask, scripted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    no_key = ask("m", QUESTION, "--base-url", scripted)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another")
    wrong_key = ask("m", QUESTION, "--base-url", scripted)
    gone = ask("m", QUESTION, "--base-url", f"http://127.0.0.1:{free_port()}/v1")

    for done in (no_key, wrong_key):
        assert done.stderr.startswith(f"error: model m at {scripted} answered 401: ")
        assert done.stderr.endswith("; check OPENAI_API_KEY\n")
    assert "sk-another" not in wrong_key.stderr
    assert gone.stderr.startswith("error: model m at http://127.0.0.1:")
    assert "cannot be reached: " in gone.stderr
    for done in (no_key, wrong_key, gone):
        assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_a_reply_without_a_text_or_an_end_is_said(ask: Ask, endpoint: ChatEndpoint) -> None:
    endpoint.will(said("It is\x1b[2J f", finish_reason="length"), said(None, reasoning="Hm."))

    cut = ask("m", QUESTION, "--base-url", endpoint.url)
    silent = ask("m", QUESTION, "--base-url", endpoint.url)

    assert (cut.code, cut.stdout) == (0, "It is\N{REPLACEMENT CHARACTER}[2J f\n")
    assert "the reply was cut off at a token limit\n" in cut.stderr
    assert (silent.code, silent.stdout) == (1, "")
    assert "the reply has no text (finish_reason stop)\n" in silent.stderr


@pytest.fixture
def files(tmp_path: Path) -> Path:
    with (tmp_path / "large.png").open("wb") as file:
        file.write(BEGINNINGS["png"])
        file.truncate(LARGEST_PICTURE + 1)
    (tmp_path / "page.png").write_text("%PDF-1.7")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["m", "w", "--picture", "{files}/none.png"], "none.png is no file"),
        (["m", "w", "--picture", "{files}"], "is no file"),
        (["m", "w", "--picture", "/proc/self/mem"], "--picture: /proc/self/mem cannot be read: Input/output error"),
        (["m", "w", "--picture", "a" * 300], "aaa cannot be read: File name too long"),
        (["m", "w", "--picture", "/dev/zero"], "--picture: /dev/zero is no file"),
        (["m", "w", "--picture", "{files}/large.png"], "large.png has more than 20 MiB"),
        (["m", "w", "--picture", "{files}/page.png"], "that models take: png, jpeg, webp, gif"),
        (["m", " "], "WORDS: there is nothing to ask"),
        (["m", "w", "--base-url", "ftp://x"], "--base-url: "),
        (["", "w", "--base-url", "http://127.0.0.1:9/v1"], "MODEL-OR-POOL: is empty"),
        (["m", "w", "--base-url", "http://x/v1", "--redis-url", "redis://x"], "give one of them"),
        (["m", "w", "--redis-url", "redis://127.0.0.1:9"], "Redis at 127.0.0.1:9 cannot be reached"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(ask: Ask, files: Path, words: list[str], says: str) -> None:
    done = ask(*(word.format(files=files) for word in words))

    assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert says in done.stderr
