"""What a user can get wrong with the command `rollouts`, for the table in `test_bad_input`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping

import pyarrow
from pyarrow import parquet

from tests.acceptance.refusals import Case, Place

ITEM = '{"id": "sum", "question": "What is 2 + 3?", "answer": "5"}\n'
DATA = {"items.jsonl": ITEM}
TREE = {
    "tree/test_all.json": '{"chrome": ["t1"]}',
    "tree/examples/chrome/t1.json": json.dumps({"id": "t1", "instruction": "Go.", "evaluator": {"func": "infeasible"}}),
}


def rollouts(
    arguments: str,
    *says: str,
    files: Mapping[str, str | bytes] = DATA,
    name: str = "",
    broker: bool = False,
    prepare: Callable[[Place], None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Case:
    """A case of ``rollouts ARGUMENTS``."""
    return Case(
        f"rollouts: {name or arguments[:70]}", arguments, says, files, environment or {}, broker, prepare, "rollouts"
    )


def table(name: str, arguments: str, *says: str, **files: str | bytes) -> Case:
    """A case of ``rollouts run`` with data in a table; a file's name has ``_`` for its dot, and ``__`` for a slash."""
    named = {name.replace("__", "/").replace("_", "."): content for name, content in files.items()}
    return rollouts(f"run --env-mode math --dry-run {arguments}", *says, files=named, name=name)


def run(arguments: str, *says: str, **more: object) -> Case:
    """A case of ``rollouts run`` with good data."""
    return rollouts(f"run --data items.jsonl --env-mode math --dry-run {arguments}", *says, name=arguments, **more)  # type: ignore[arg-type]


def parquet_file(**columns: list[object] | pyarrow.Array) -> bytes:
    """A Parquet file with these columns."""
    return _parquet(pyarrow.table(columns))


def _parquet(table: pyarrow.Table) -> bytes:
    written = io.BytesIO()
    parquet.write_table(table, written)
    return written.getvalue()


GOOD_TABLE = parquet_file(question=["What is 2 + 3?"], answer=["5"])
COLUMN_TWICE = _parquet(pyarrow.table([["?"], ["1"], ["2"]], names=["question", "a", "a"]))

TABLE_CASES = [
    table("CSV that is empty", "--data t.csv", "t.csv: is empty", t_csv=""),
    table("CSV without rows", "--data t.csv", "t.csv: has no rows below its heading", t_csv="question,answer\n"),
    table("CSV with a column twice", "--data t.csv", "its heading has 'answer' twice", t_csv="answer,answer\n1,2\n"),
    table("CSV with too many cells", "--data t.csv", "line 2: has 3 cells under a heading of 2", t_csv="question,answer\n1,2,3\n"),
    table("CSV with an open quote", "--data t.csv", "t.csv, line 2: is broken", t_csv='question,answer\n"1,2\n'),
    table("CSV with a broken quote in its heading", "--data t.csv", "t.csv, line 1: is broken", t_csv='"que"stion,answer\n1,2\n'),
    table("CSV that is not UTF-8", "--data t.csv", "t.csv: is not UTF-8 in line ", t_csv=b"question,answer\n\xff,2\n"),
    table("CSV without a question", "--data t.csv", "t.csv, line 2: question is missing", t_csv="prompt,answer\n1,2\n"),
    table("TSV with commas", "--data t.tsv", "t.tsv, line 2: question is missing", t_tsv="question,answer\n1,2\n"),
    table("field that the data lacks", "--data t.csv --field question=text", 't.csv, line 2: has no field "text"',
          t_csv="prompt,answer\n1,2\n"),
    table("field without =", "--data t.csv --field question", "--field: must look like question=prompt, got 'question'",
          t_csv="prompt,answer\n1,2\n"),
    table("field under another name", "--data t.csv --field q=prompt", "t.csv, line 2: question is missing",
          t_csv="prompt,answer\n1,2\n"),
    table("Parquet that is broken", "--data t.parquet", "t.parquet: is broken", t_parquet=b"PAR1 nothing PAR1"),
    table("Parquet that is empty", "--data t.parquet", "t.parquet: is broken", t_parquet=b""),
    table("Parquet with a column twice", "--data t.parquet", "t.parquet: has the column 'a' twice", t_parquet=COLUMN_TWICE),
    table("Parquet with a day that is none of Python's", "--data t.parquet", "t.parquet, row 2: 'day' cannot be read",
          t_parquet=parquet_file(question=["?", "?"], day=pyarrow.array([0, 10**7], pyarrow.date32()))),
    table("Parquet without rows", "--data t.parquet", "t.parquet: has no rows", t_parquet=parquet_file(question=[])),
    table("Parquet without a question", "--data t.parquet", "t.parquet, row 1: question is missing",
          t_parquet=parquet_file(prompt=["?"])),
    table("dataset with a split that it lacks", "--data d --split test", "d: has the splits train; not 'test'? (--split)",
          d__train_parquet=GOOD_TABLE),
    table("dataset with several splits", "--data d", "d: has the splits test, train; which one? (--split)",
          d__train_parquet=GOOD_TABLE, d__test_parquet=GOOD_TABLE),
    table("split of a file", "--data t.csv --split test", "t.csv: has no splits to choose from (--split)",
          t_csv="question,answer\n1,2\n"),
    rollouts("run --env-mode math --dry-run --data d", "d/dataset_dict.json", name="dataset with a broken list of splits",
             files={"d/dataset_dict.json": "{"}),
    rollouts("run --env-mode math --dry-run --data d", "d/dataset_dict.json", name="dataset with no list of splits",
             files={"d/dataset_dict.json": "[]"}),
    rollouts("run --env-mode math --dry-run --data d", "d/train", name="dataset that lacks its split's folder",
             files={"d/dataset_dict.json": '{"splits": ["train"]}'}),
    rollouts("run --env-mode math --dry-run --data d", "d/state.json", name="dataset with a broken state",
             files={"d/state.json": "{}"}),
    rollouts("run --env-mode math --dry-run --data d", "d/state.json", "'../secret.arrow'", name="dataset that climbs",
             files={"d/state.json": '{"_data_files": [{"filename": "../secret.arrow"}]}', "secret.arrow": b"x"}),
    rollouts("run --env-mode math --dry-run --data d", "data.arrow: is broken", name="dataset with a broken file",
             files={"d/state.json": '{"_data_files": [{"filename": "data.arrow"}]}', "d/data.arrow": b"nothing"}),
    rollouts("run --env-mode math --dry-run --data -", "standard input: is empty", name="nothing on standard input"),
]  # fmt: skip

RUN_CASES = [
    rollouts("runn", "no such command 'runn'; did you mean run?"),
    rollouts("frobnicate", "no such command 'frobnicate'; there are run, submit"),
    rollouts("--verion", "no such option: --verion"),
    run("--item 'a*'", "--item: no item of the benchmark", "'a*'"),
    run("--limit -1", "--limit: must be at least 1, got -1"),
    run("--temperature 3", "--temperature: must be at most 2, got 3"),
    run("--top-p 0", "--top-p: must be more than 0, got 0"),
    run("--model-seed soon", "--model-seed: must be a whole number, got 'soon'"),
    run("--extra-body '{{'", "--extra-body: is not JSON"),
    run("--extra-body '[1]'", "--extra-body: must be a JSON object, got [1]"),
    run("--extra-body '{{\"model\": \"m\"}}'", "--extra-body: may not set model, which the run sets itself"),
    run("--extra-body '{{\"a\": NaN}}'", "--extra-body"),
    run("--system-prompt-file gone.txt", "--system-prompt-file: gone.txt cannot be read"),
    run("--system-prompt-file empty.txt", "--system-prompt-file: empty.txt is empty", files={**DATA, "empty.txt": ""}),
    run("--prompt-price 1 --base-url {odd}/served --model m1", "--prompt-price, --completion-price: only one of them is given"),
    run("--base-url http://10.0.0.256:8000/v1", "--base-url: must look like http://host:port/v1"),
    run("--base-url http://☃/v1", "--base-url: must look like http://host:port/v1"),
    rollouts(f"run --data items.jsonl --env-mode math --dry-run --base-url http://host/{'a' * 70_000}",
             "--base-url: must look like http://host:port/v1", name="an endpoint of 70,000 characters"),
    rollouts("submit --data items.jsonl --env-mode math", "OPENAI_BASE_URL: must look like http://host:port/v1",
             name="an endpoint of 256 in the environment", environment={"OPENAI_BASE_URL": "http://10.0.0.256/v1"}, broker=True),
    rollouts("run --data items.jsonl --env-mode math --dry-run --base-url {odd}/served --model m1",
             "HTTP_PROXY", name="a proxy of 256", environment={"HTTP_PROXY": "http://10.0.0.256:1", "NO_PROXY": ""}),
    run("--prompt-price -1", "--prompt-price: must be at least 0, got -1"),
    run("--max-cost 0", "--max-cost: must be more than 0, got 0"),
    run("--max-cost 1 --base-url {odd}/served --model m1", "--max-cost: what 'm1' costs is not known: give --prompt-price"),
    run("--guest-network 10.0.0.1", "--guest-network", "'10.0.0.1'"),
    run("--provider-option nonsense", "--provider-option: must look like key=value, got 'nonsense'"),
    run("--num-rollouts 1e3", "--num-rollouts: must be a whole number, got '1e3'"),
    run("--config run.yaml", "run.yaml: model: must be a mapping", files={**DATA, "run.yaml": "model: gpt\n"}),
    run("--config ./run.yaml", "desktop.screen_width: must be at least 1, got 0",
        files={**DATA, "run.yaml": "desktop: {screen_width: 0}\n"}),
    rollouts("run --data items.jsonl --env-mode simulated --max-cost 1 --dry-run", "--max-cost: this run asks no model"),
    rollouts("submit --data items.jsonl --env-mode simulated", "REDIS_URL", name="submit without a broker"),
    rollouts("submit --data items.jsonl --env-mode simulated", "ROLLOUT_RECONCILE_EVERY: must be more than 0, got 0",
             name="a setting of 0 seconds", environment={"ROLLOUT_RECONCILE_EVERY": "0"}),
    rollouts("run --data items.jsonl --env-mode math --dry-run", "ROLLOUT_DOWNLOAD_HOSTS: must name hosts",
             name="a download host with a path", environment={"ROLLOUT_DOWNLOAD_HOSTS": "http://a/b"}),
]  # fmt: skip

OTHER_CASES = [
    rollouts("watch nobody", "Redis does not know run 'nobody'", broker=True),
    rollouts("cancel nobody", "Redis does not know run 'nobody'", broker=True),
    rollouts("resume nobody", "no run 'nobody'"),
    rollouts("resume nobody --base-url http://10.0.0.256/v1", "--base-url: must look like http://host:port/v1"),
    rollouts("resume nobody --max-cost much", "--max-cost: must be a number, got 'much'"),
    rollouts("show", "missing argument"),
    rollouts("list everything", "what: 'everything' is not one of 'runs', "),
    rollouts("list --output-dir items.jsonl", "--output-dir: items.jsonl cannot be read: Not a directory"),
    rollouts("prefetch", "missing option '--data-path'"),
    rollouts("prefetch --data gone.json", "gone.json: no such file or folder"),
    rollouts("prefetch --data tree --at-a-time 0", "--at-a-time: must be at least 1, got 0", files=TREE),
    rollouts("vm-host --num-vms 0", "--num-vms: must be at least 1, got 0"),
    rollouts("vm-host --provider cloud", "'cloud'", "simulated", broker=True),
    rollouts("vm-host --option reset_failure=2", "reset_failure: must be at most 1, got 2", broker=True),
    rollouts("vm-host --pool 'a b'", "'a b' is not a pool's name", broker=True),
    rollouts("vm-host --host-id 'a b'", "'a b", broker=True),
    rollouts("vm-host --option nonsense", "--option: must look like key=value, got 'nonsense'", broker=True),
    rollouts("vm-host --option colour=red", "does not accept its options: colour: is not an option", broker=True),
    rollouts("pool events --limit 0", "--limit: must be at least 1, got 0", broker=True),
    rollouts("pool connect vm-1", "pool 'default' has no VM vm-1", broker=True),
    rollouts("pool status --redis-url nowhere", "--redis-url", "must look like redis://"),
    rollouts("image build --profile ful", "'ful'", "full"),
    rollouts("image build --package inkscape", "--package: --name is missing"),
    rollouts("image build --name 'a b'", "'a b'"),
    rollouts("image build --check gone.json", "gone.json: no such file or folder"),
    rollouts("image build --remove nobody", "'nobody'"),
    rollouts("scripted-model --data-path gone.jsonl", "gone.jsonl: no such file or folder"),
    rollouts("scripted-model --data-path items.jsonl", "items.jsonl: none of its 1 items has a script"),
    rollouts("scripted-model --data-path items.jsonl --port 70000", "--port: must be at most 65535, got 70000"),
    rollouts("scripted-model --data-path items.jsonl --host 0.0.0.0", "--host 0.0.0.0 can be reached from other machines"),
    rollouts("doctor --quick", "no such option: --quick"),
]  # fmt: skip

ROLLOUTS_CASES = [*TABLE_CASES, *RUN_CASES, *OTHER_CASES]
