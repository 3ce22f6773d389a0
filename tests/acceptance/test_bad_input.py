"""What a user can get wrong, through the real commands: one sentence that names it, and nothing done, lost or left behind."""

from __future__ import annotations

import contextlib
import json
import shlex
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass
from rollout_tasks.redis_client import connect
from rollout_tasks.runs.finalize import score_run
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission_store import reserve
from rollout_tasks.runs.verdict import Verdict
from tests.acceptance.bad_commands import ROLLOUTS_CASES
from tests.acceptance.odd_endpoint import odd_endpoint
from tests.acceptance.refusals import CAN_MOUNT, SECRET, Case, Outcome, Place, Runner, run_command
from tests.conftest import ValkeyServer

GOOD = '{"id": "sum", "question": "What is 2 + 3?", "answer": "5"}\n'
"""Without a script, so that nothing is ever rolled out with it by mistake."""
DATA = {"items.jsonl": GOOD}
ITEMS = "--data-path items.jsonl --env-mode math"
WITHOUT_MODEL = "--data-path items.jsonl --env-mode simulated"
RUN_ID = "2026-done"
PARALLEL = 4


def finished_run(place: Place) -> None:
    """A run of two items in ``results``, one of them lost to the infrastructure."""
    folder = RunFolder(place.folder / "results" / RUN_ID)
    items = [Item("sum", "What is 2 + 3?", "5"), Item("product", "What is 2 * 3?", "6")]
    config = RunConfig.model_validate({"env_mode": "simulated", "run_id": RUN_ID})
    folder.description.create(config, items, data_path="items.jsonl", data_name="items")
    folder.settle(Verdict("sum#0", 1, "completed", answer="5"), written=False)
    overload = FailureClass.MODEL_OVERLOAD
    lost = Verdict("product#0", 1, "failed", failure_class=overload, error="it was too much")
    folder.settle(lost, written=False)
    score_run(folder, "exact_match")


def damaged(name: str, content: str | None) -> object:
    """A finished run with one file replaced, or removed."""

    def prepare(place: Place) -> None:
        finished_run(place)
        path = place.folder / "results" / RUN_ID / name
        if content is None:
            path.unlink()
        else:
            path.write_text(content)

    return prepare


def run_under_way(place: Place) -> None:
    finished_run(place)
    folder = RunFolder(place.folder / "results" / RUN_ID)
    client = connect(tries=0, url=place.redis_url)
    store = RunStore(client)
    stored = reserve(store.client, RUN_ID, folder.description.config(), str(folder.path), 2)
    stored.add_results([Verdict("sum#0", 1, "completed", answer="5")])
    stored.add_items(folder.description.items(), ["product#0"])
    assert stored.everything_sent()
    client.close()


def lines(*values: object) -> dict[str, str | bytes]:
    return {"items.jsonl": "".join(json.dumps(value) + "\n" for value in values)}


def item(**fields: object) -> dict[str, object]:
    return {"id": "sum", "question": "What is 2 + 3?", "answer": "5"} | fields


def data_case(name: str, files: dict[str, str | bytes], *says: str, arguments: str = ITEMS) -> Case:
    return Case(name, arguments, says, files)


def option_case(arguments: str, *says: str) -> Case:
    return Case(arguments[:60], f"{ITEMS} {arguments}", says, DATA)


def config_case(name: str, content: str | bytes, *says: str) -> Case:
    return Case(
        f"--config that {name}", f"{ITEMS} --config run.yaml", ["run.yaml", *says], {**DATA, "run.yaml": content}
    )


def model_case(path: str, *says: str) -> Case:
    return Case(f"model endpoint: {path}", f"{ITEMS} --base-url {{odd}}/{path} --dry-run", says, DATA)


def redis_case(name: str, url: str, *says: str) -> Case:
    return Case(f"Redis: {name}", WITHOUT_MODEL, says, DATA, {"REDIS_URL": url})


def resume_case(name: str, prepare: object, *says: str, run: str = RUN_ID, options: str = "") -> Case:
    return Case(
        f"resume: {name}",
        f"--resume {run} {options}",
        says,
        DATA,
        broker=True,
        prepare=prepare,  # type: ignore[arg-type]
    )


DATA_CASES = [
    data_case(
        "broken JSONL", {"items.jsonl": GOOD + '\n{"id": "x", \n'}, "items.jsonl, line 3", "broken JSON at column"
    ),
    data_case("a line that is no object", lines(item(), [1, 2]), "line 2", "must be an object, got a list"),
    data_case("not UTF-8", {"items.jsonl": GOOD.encode() + b'{"id": "\xff"}\n'}, "line 2", "not UTF-8 at byte 8"),
    data_case("NaN", {"items.jsonl": '{"question": "2?", "answer": NaN}\n'}, "line 1", "NaN"),
    data_case("duplicate id", lines(item(), item(id="b"), item()), 'line 3: id "sum" is already used', "line 1"),
    data_case("empty file", {"items.jsonl": ""}, "items.jsonl: is empty"),
    data_case("missing question", lines(item(), {"id": "b"}), "line 2: question is missing"),
    data_case("id that climbs", lines(item(id="../../etc/passwd")), "line 1", "'..' between slashes"),
    data_case("id with NUL", lines(item(id="a\0b")), "line 1", 'id "a\\u0000b" holds a control character'),
    data_case("id of 300 characters", lines(item(id="x" * 300)), "line 1", "300 bytes in UTF-8, more than 200"),
    data_case("id of 300 bytes", lines(item(id="ж" * 150)), "line 1", "300 bytes in UTF-8, more than 200"),
    data_case("half a surrogate pair", {"items.jsonl": '{"id": "\\ud800", "question": "?"}\n'}, "line 1", "surrogate"),
    data_case("id that is a list", lines(item(id=["a"])), 'line 1: id must be text or a whole number, got ["a"]'),
    data_case("env_config that is text", lines(item(env_config="math")), "line 1: env_config must be an object"),
    data_case(
        "item of an unknown environment",
        lines(item(env_config={"env_mode": "maths"})),
        "items.jsonl, line 1: item 'sum': env_config.env_mode: unknown environment 'maths': did you mean math?",
    ),
    data_case(
        "item whose environment is a number",
        lines(item(env_config={"env_mode": 5})),
        "items.jsonl, line 1: item 'sum': env_config.env_mode must be text, got 5",
    ),
    data_case("no such file", {}, "items.jsonl: no such file or folder"),
    data_case(
        "unknown suffix", {"items.xls": GOOD}, "items.xls", "unknown suffix '.xls'", arguments="--data items.xls"
    ),
    data_case("folder that is no tree", {"tree/readme": "x"}, "tree", "without test_all.json", arguments="--data tree"),
    data_case(
        "task file missing from a tree",
        {"tree/test_all.json": '{"chrome": ["t1"]}', "tree/examples/chrome/t2.json": "{}"},
        "test_all.json, chrome entry 1",
        "t1.json is missing",
        arguments="--data tree",
    ),
    data_case(
        "tree that climbs",
        {"tree/test_all.json": '{"../../etc": ["passwd"]}', "tree/examples/x": ""},
        "'../../etc' cannot be a folder's or file's name",
        arguments="--data tree",
    ),
    data_case(
        "empty list", {"items.json": "[]"}, "items.json: its list of items is empty", arguments="--data items.json"
    ),
    data_case("broken JSON", {"items.json": "[\n1,"}, "items.json", "line 2", arguments="--data items.json"),
    data_case(
        "nothing valid left", lines({}, {}), "none of its 2 entries is valid", arguments=f"{ITEMS} --skip-invalid"
    ),
    data_case(
        "an answer pattern that never comes to an end",
        lines(item(answer="a" * 40 + "!")),
        "line 1: answer pattern '(a|aa)+$' takes longer than 1 s on the answer of item",
        arguments=f"{ITEMS} --answer-pattern '(a|aa)+$'",
    ),
    data_case(
        "an item without an answer",
        lines(item(), item(id="b", answer="")),
        "items.jsonl, line 2: item 'b': has no answer that exact_match could compare with",
        "; --no-evaluate-results rolls out without scores",
    ),
    data_case(
        "a reference without a number",
        lines(item(), item(id="b", answer="five")),
        "items.jsonl, line 2: item 'b': its answer 'five' holds no number, which final_number compares",
        arguments=f"{ITEMS} --metric final_number",
    ),
    data_case(
        "desktop tasks in an environment that does not score them",
        {
            "tree/test_all.json": '{"chrome": ["t1"]}',
            "tree/examples/chrome/t1.json": json.dumps(
                {"id": "t1", "instruction": "Go.", "evaluator": {"func": "infeasible"}}
            ),
        },
        "t1.json: item 't1': has no answer that exact_match could compare with",
        arguments="--data tree --env-mode math",
    ),
    data_case("no data path", {}, "--data-path is missing", arguments="--env-mode math"),
    data_case("data path of 300 characters", {}, "cannot be read: ", arguments=f"--data {'x' * 300}.jsonl"),
]

OPTION_CASES = [
    option_case("--bad", "no such option: --bad"),
    option_case("--max-turn 5", "no such option: --max-turn; did you mean --max-turns?"),
    option_case("--modle x", "no such option: --modle; did you mean --model?"),
    option_case("--model", "option '--model' requires an argument"),
    option_case("surplus", "unexpected extra argument", "surplus"),
    option_case("--num-rollouts 0", "--num-rollouts: must be at least 1, got 0"),
    option_case("--num_rollouts=-3", "--num-rollouts: must be at least 1, got -3"),
    option_case("--num-rollouts many", "--num-rollouts: must be a whole number, got 'many'"),
    option_case("--num-vms 0", "--num-vms: must be at least 1, got 0"),
    option_case("--rollouts-per-item 0", "--rollouts-per-item: must be at least 1, got 0"),
    option_case("--max-turns 0", "--max-turns: must be at least 1, got 0"),
    option_case("--images-in nowhere", "--images-in: must be user or tool, got 'nowhere'"),
    option_case("--max-images -1", "--max-images: must be at least 0, got -1"),
    option_case("--max-images few", "--max-images: must be a whole number, got 'few'"),
    option_case("--metric exact", "--metric: unknown metric 'exact'", "did you mean exact_match?"),
    option_case("--env-mode maths", "--env-mode: unknown environment 'maths'", "did you mean math?"),
    option_case("--agent tool", "--agent: unknown agent 'tool'", "tool_calling"),
    option_case("--model ''", "--model: must not be empty"),
    option_case("--run-id ../../etc", "--run-id: may have letters, digits", "got '../../etc'"),
    option_case("--pool 'a b'", "--pool: may have letters, digits", "got 'a b'"),
    option_case("--provider-name cloud --env-mode simulated", "--provider-name: ", "'cloud'", "simulated"),
    option_case(f"--base-url http://me:{SECRET}@127.0.0.1/v1", "--base-url: must not carry a user, password or query"),
    option_case("--base-url example.com/v1", "--base-url: must look like http://host:port/v1"),
    option_case("--answer-pattern '(('", "--answer-pattern: is not a regular expression", "position"),
    option_case("--answer-pattern '#### .+'", "--answer-pattern: needs one group (...) around the answer"),
    option_case("--answer-pattern '#### (.+)'", "items.jsonl, line 1", "finds nothing in the answer of item"),
    option_case("--limit 0", "--limit: must be at least 1, got 0"),
    option_case("--item summ", "--item: no item of the benchmark is called 'summ'; did you mean sum?"),
    option_case("--domain maths", "--domain: no domain of the benchmark is called 'maths'"),
    option_case("--seed soon", "--seed: must be a whole number, got 'soon'"),
    option_case("--resume x --status y", "--resume, --status and --cancel exclude each other"),
    option_case("--status x", "--status takes no options of a run", "--data-path", "--env-mode"),
    option_case("--resume x --config run.yaml", "a resumed run keeps its own configuration; leave out --config"),
]

CONFIG_CASES = [
    Case("--config that is missing", f"{ITEMS} --config run.yaml", ["--config: run.yaml cannot be read"], DATA),
    config_case("is no YAML", "limits: {max_turns: 5\nmodel: [", "--config", "is not YAML", "line 2"),
    config_case("is a list", "- math\n", "is not a mapping of options"),
    config_case("has an unknown key", "env_mod: math\n", "env_mod: is not an option; did you mean env_mode?"),
    config_case("has an unknown inner key", "limits: {max_turn: 5}\n", "limits.max_turn", "did you mean max_turns?"),
    config_case(
        "has text for a number", "limits: {max_turns: ten}\n", "limits.max_turns: must be a whole number, got 'ten'"
    ),
    config_case(
        "says a key twice",
        "env_mode: math\nlimits: {max_turns: 5}\nenv_mode: py\n",
        "--config: run.yaml: env_mode occurs twice, in lines 1 and 3",
    ),
    config_case(
        "says an inner key twice",
        "limits:\n  max_turns: 5\n  max_turns: 6\n",
        "--config: run.yaml: max_turns occurs twice, in lines 2 and 3",
    ),
    config_case(
        "fails with an unknown class", "simulated: {fail: foo}\n", "simulated.fail: must be env_setup, ", "got 'foo'"
    ),
    config_case(
        "has its shortest above its longest", "simulated: {seconds: [3, 1]}\n", "simulated.seconds: the shortest"
    ),
    config_case("has no such day", "run_id: 2026-02-31\n", "is not YAML", "day"),
    config_case("has a path with NUL", 'output_dir: "a\\0b"\n', "output_dir: is not a file name"),
]

ENVIRONMENT_CASES = [
    Case("lease TTL that is no number", ITEMS, ["ROLLOUT_LEASE_TTL", "must be a number, got 'soon'"], DATA,
         {"ROLLOUT_LEASE_TTL": "soon"}),
    Case("key with a line break", f"{ITEMS} --base-url {{odd}}/served --dry-run", ["OPENAI_API_KEY: contains characters"],
         DATA, {"OPENAI_API_KEY": f"{SECRET}\n{SECRET}"}),
    Case("configured endpoint with a password", ITEMS, ["OPENAI_BASE_URL: must not carry a user, password or query"],
         DATA, {"OPENAI_BASE_URL": f"http://me:{SECRET}@127.0.0.1:9/v1"}),
    Case("configured endpoint that is none", ITEMS, ["OPENAI_BASE_URL: must look like http://host:port/v1"],
         DATA, {"OPENAI_BASE_URL": "localhost"}),
]  # fmt: skip

REDIS_CASES = [
    redis_case("out of reach", "redis://:hunter2@127.0.0.1:{closed}/0", "Redis at 127.0.0.1:{closed}/0 cannot be reached"),
    redis_case("without the password", "redis://{redis}/0", "refuses the login: check the user and the password"),
    redis_case("with a wrong password", "redis://:hunter2@{redis}/0", "refuses the login: check the user and the password"),
    redis_case("some other server", "redis://:hunter2@{odd_place}/0", "Redis at {odd_place}/0 cannot be reached"),
    redis_case("silent", "redis://:hunter2@{silent}/0", "Redis at {silent}/0 cannot be reached: Timeout"),
    redis_case("no such address", "localhost:6379", "REDIS_URL: must look like redis://:password@host:6379/0"),
    Case("status of an unknown run", "--status nobody", ["Redis does not know run 'nobody'"], broker=True),
    Case("cancelling an unknown run", "--cancel nobody", ["Redis does not know run 'nobody'"], broker=True),
    Case("run id in use", f"{WITHOUT_MODEL} --no-pool --run-id {RUN_ID} --output-dir other",
         [f"--run-id: a run '{RUN_ID}' exists already"], DATA, broker=True, prepare=run_under_way),
    Case("empty pool", WITHOUT_MODEL, ["--pool: the pool 'default' has no VMs"], DATA, broker=True),
    Case("empty pool, dry run", f"{WITHOUT_MODEL} --dry-run --pool far", ["--pool: the pool 'far' has no VMs"], DATA,
         broker=True),
]  # fmt: skip

MODEL_CASES = [
    model_case("401", "the model endpoint {odd}/401 refuses the key (HTTP 401): check OPENAI_API_KEY"),
    model_case("404", "answers HTTP 404 at /models and HTTP 404 at /chat/completions", "/v1?"),
    model_case("keyed-chat", "{odd}/keyed-chat refuses the key (HTTP 401)"),
    model_case("429", "the model endpoint {odd}/429 answers HTTP 429 (3 tries)"),
    model_case("500", "the model endpoint {odd}/500 answers HTTP 500 (3 tries)"),
    model_case("hang", "the model endpoint {odd}/hang gave no answer within 10 s"),
    model_case("html", "{odd}/html is not an OpenAI-compatible endpoint: /models did not return a list of models"),
    model_case("broken", "is not an OpenAI-compatible endpoint"),
    model_case("served --model gpt-9", "--model: {odd}/served does not serve 'gpt-9'; it serves m1, m2"),
    model_case("served --model m1 --metric llm_judgement --judge-model m3", "--judge-model", "does not serve 'm3'"),
    Case("model endpoint out of reach", f"{ITEMS} --base-url http://127.0.0.1:{{closed}}/v1",
         ["the model endpoint http://127.0.0.1:{closed}/v1 cannot be reached", "refused"], DATA, broker=True),
    Case("no model for workers", ITEMS, ["no model is configured: set OPENAI_API_KEY"], DATA, broker=True),
    Case("no script for the scripted model", ITEMS, ["no model is configured", "no script for 1 of 1 items", "'sum'"], DATA),
    Case("no script, dry run", f"{ITEMS} --dry-run", ["no model is configured", "no script for 1 of 1 items"], DATA),
]  # fmt: skip

OUTPUT_CASES = [
    Case("output directory that is a file", f"{WITHOUT_MODEL} --no-pool --output-dir items.jsonl",
         ["--output-dir: ", "items.jsonl cannot be made: File exists"], DATA, broker=True),
    Case("output directory that is a file, dry run", f"{WITHOUT_MODEL} --dry-run --output-dir items.jsonl",
         ["--output-dir: ", "items.jsonl is not a folder"], DATA),
    Case("output directory of 300 characters", f"{WITHOUT_MODEL} --no-pool --output-dir {'x' * 300}",
         ["--output-dir: ", "File name too long"], DATA, broker=True),
    Case("read-only output directory", f"{WITHOUT_MODEL} --no-pool --output-dir out",
         ["--output-dir: ", "out cannot be written: Read-only file system"], DATA, broker=True, mount="ro"),
    Case("read-only output directory, dry run", f"{WITHOUT_MODEL} --dry-run --output-dir out/results",
         ["--output-dir: ", "out cannot be written to"], DATA, mount="ro"),
    Case("full output directory", f"{WITHOUT_MODEL} --no-pool --output-dir out",
         ["--output-dir: ", "out cannot be written: No space left on device"], DATA, broker=True, mount="size=1m"),
    Case("run folder that exists", f"{WITHOUT_MODEL} --no-pool --run-id {RUN_ID}",
         ["--run-id: ", f"results/{RUN_ID} exists already; take another name, or continue it with"], DATA, broker=True,
         prepare=finished_run),
]  # fmt: skip

RESUME_CASES = [
    resume_case("under way", run_under_way, f"run {RUN_ID} is still running", f"rollouts watch {RUN_ID}"),
    resume_case("with options", finished_run, "a resumed run keeps its own configuration; leave out --max-turns",
                options="--max-turns 3"),
    resume_case("an endpoint that is none", finished_run, "--base-url: must look like http://host:port/v1",
                options="--base-url nowhere"),
    resume_case("no run", None, f"no run '{RUN_ID}'", "has a run.json"),
    resume_case("a folder that is no run", None, "no run '.'", run="."),
    resume_case("a name of 300 characters", None, "no run 'xxx", run="x" * 300),
    resume_case("broken run.json", damaged("run.json", "{"), f"{RUN_ID}/run.json cannot be read", "line 1"),
    resume_case("run.json without config", damaged("run.json", "{}"), "run.json", "it has no config"),
    resume_case("run.json with a wrong option", damaged("run.json", '{"config": {"num_rollouts": 0}}'),
                "run.json: num_rollouts: must be at least 1, got 0"),
    resume_case("no items.jsonl", damaged("items.jsonl", None), "items.jsonl cannot be read: No such file"),
    resume_case("broken items.jsonl", damaged("items.jsonl", '{"id": "sum"\n'), "items.jsonl, line 1"),
    resume_case("items.jsonl without a question", damaged("items.jsonl", '{"id": "sum"}\n'), "items.jsonl, line 1",
                "question is missing"),
    resume_case("items.jsonl with a list", damaged("items.jsonl", "[]\n"), "items.jsonl, line 1"),
    resume_case("broken result", damaged("sum/0/result.json", "{"), "0/result.json cannot be read"),
    resume_case("result that is a list", damaged("sum/0/result.json", "[]"), "0/result.json cannot"),
]  # fmt: skip

OTHER_COMMANDS = [
    Case("rescore: unknown metric", f"{RUN_ID} --metric f1_scor", ["--metric: unknown metric 'f1_scor'", "did you mean f1_score?"],
         command="rescore.py", prepare=finished_run),
    Case("rescore: no metric", RUN_ID, ["missing option '--metric'"], command="rescore.py", prepare=finished_run),
    Case("rescore: no run", "nobody --metric f1_score", ["no run 'nobody'"], command="rescore.py"),
    Case("rescore: broken result", f"{RUN_ID} --metric f1_score", ["result.json cannot be read"], command="rescore.py",
         prepare=damaged("sum/0/result.json", "{")),  # type: ignore[arg-type]
    Case("rescore: no judge", f"{RUN_ID} --metric llm_judgement", ["llm_judgement needs a model: set OPENAI_API_KEY"],
         command="rescore.py", prepare=finished_run),
    Case("rescore: a rollout without a verdict", f"{RUN_ID} --metric f1_score",
         [f"run {RUN_ID} is not scored: 1 of 2 rollouts have no verdict; ", "rollouts status ", "rollouts resume "],
         command="rescore.py", prepare=damaged("sum/0/result.json", None)),  # type: ignore[arg-type]
    Case("show: no run", "nobody", ["no run 'nobody'", "results/nobody"], command="show_result.py"),
    Case("show: no evaluation", RUN_ID, [f"run {RUN_ID} has no report; score it with: rollouts rescore "], command="show_result.py",
         prepare=damaged("evaluation.json", None)),  # type: ignore[arg-type]
    Case("show: broken evaluation", RUN_ID, ["evaluation.json: is not a JSON report"], command="show_result.py",
         prepare=damaged("evaluation.json", "{")),  # type: ignore[arg-type]
    Case("show: another evaluation", RUN_ID, ["evaluation.json: is not an evaluation report"], command="show_result.py",
         prepare=damaged("evaluation.json", '{"summary": {}, "benchmark_info": {}, "evaluation_results": [{}]}')),  # type: ignore[arg-type]
    Case("pool: unknown command", "statu", ["no such command 'statu'"], command="pool.py", broker=True),
    Case("pool: unknown VM", "release vm-1", ["vm-1"], command="pool.py", broker=True),
    Case("pool: bad name", "status --pool 'a b'", ["--pool", "'a b'"], command="pool.py", broker=True),
    Case("pool: bad VM id", "reset 'a b'", ["'a b' is not a VM's id"], command="pool.py", broker=True),
    Case("pool: Redis out of reach", "status", ["127.0.0.1:{closed}"], command="pool.py",
         environment={"REDIS_URL": f"redis://:{SECRET}@127.0.0.1:{{closed}}/0"}),
]  # fmt: skip

CASES = [
    *DATA_CASES,
    *OPTION_CASES,
    *CONFIG_CASES,
    *ENVIRONMENT_CASES,
    *REDIS_CASES,
    *MODEL_CASES,
    *OUTPUT_CASES,
    *RESUME_CASES,
    *OTHER_COMMANDS,
    *ROLLOUTS_CASES,
]


@pytest.fixture(scope="module")
def runner(_shared_valkey: ValkeyServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with contextlib.ExitStack() as stack:
        odd = stack.enter_context(odd_endpoint())
        closed = stack.enter_context(socket.socket())
        closed.bind(("127.0.0.1", 0))  # and never listens; nobody else gets the port meanwhile
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        names = {
            "odd": odd,
            "odd_place": odd.removeprefix("http://"),
            "silent": f"127.0.0.1:{silent.getsockname()[1]}",
            "closed": str(closed.getsockname()[1]),
            "redis": f"127.0.0.1:{_shared_valkey.port}",
            "redis_password": _shared_valkey.password,
        }
        yield Runner(tmp_path_factory.mktemp("cases"), _shared_valkey.url, names, PARALLEL)


@pytest.fixture(scope="module")
def outcomes(runner: Runner, request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Outcome]]]:
    """Every selected case's outcome, several being worked out at a time."""
    parameters = [node.callspec.params.get("case") for node in request.session.items if hasattr(node, "callspec")]
    chosen = {case.name for case in parameters if isinstance(case, Case)}
    with ThreadPoolExecutor(PARALLEL) as threads:
        yield {case.name: threads.submit(runner.run, case) for case in CASES if case.name in chosen}
        threads.shutdown(cancel_futures=True)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if place % 3 == 0 else pytest.mark.slow) for place, case in enumerate(CASES)],
    ids=lambda case: case.name,
)
def test_bad_input_is_refused_in_one_sentence(case: Case, outcomes: dict[str, Future[Outcome]], runner: Runner) -> None:
    if case.mount and not CAN_MOUNT:
        pytest.skip("needs to mount a file system: run as root")

    outcome = outcomes[case.name].result()

    assert outcome.exit_code == case.exit_code, outcome.stderr
    assert outcome.stderr.startswith("error: ")
    assert outcome.stderr.count("\n") == 1, "one sentence"
    for words in case.says:
        assert words.format_map(runner.names) in outcome.stderr
    assert "Traceback" not in outcome.stdout + outcome.stderr
    assert SECRET not in outcome.stdout + outcome.stderr
    assert outcome.keys_after == outcome.keys_before, "nothing enqueued"
    assert outcome.files_after == outcome.files_before, "nothing lost, nothing left"


def test_a_full_redis_takes_no_part_of_a_run(valkey: ValkeyServer, tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text(GOOD)
    with redis.Redis.from_url(valkey.url) as client:
        client.config_set("maxmemory", 1)

        done = run_command("submit.py", shlex.split(f"{WITHOUT_MODEL} --no-pool"), tmp_path, {"REDIS_URL": valkey.url})

        assert done.returncode == 2
        assert done.stderr.startswith(
            "error: Redis did not accept the run, so nothing was enqueued: Redis refuses: OOM"
        )
        assert done.stderr.count("\n") == 1
        assert client.dbsize() == 0
    assert list((tmp_path / "results").iterdir()) == []
