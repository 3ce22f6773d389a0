"""A thousand rollouts in each format of conversations and records, as the format's own reader gets them.

Hugging Face's datasets and Harbor's models are installed into an environment of their own. LLaMA-Factory takes several gigabytes:
`LLAMAFACTORY_PYTHON` names the interpreter of an environment that has it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam
from pydantic import TypeAdapter

from benchmark.results import VALID
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.exports.formats import Kind
from rollout_tasks.training.exports.run_export import export_run
from rollout_tasks.trajectories.call_reader import read_calls
from rollout_tasks.trajectories.data_urls import picture_of
from rollout_tasks.trajectories.reader import read_trajectory
from tests.conftest import REPOSITORY
from tests.unit.training.varied_rollouts import KINDS, item_of, kind_of, rows_of, varied_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
PROGRAMS = Path(__file__).parent / "export_readers"
ROLLOUTS = 1000
CHAT = KINDS[:3]
"""Those whose messages are of Chat Completions."""
Message = dict[str, Any]
MESSAGES = TypeAdapter(list[ChatCompletionMessageParam])
TOOLS = TypeAdapter(list[ChatCompletionFunctionToolParam])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return varied_run(tmp_path_factory.mktemp("runs") / "night-1", ROLLOUTS)


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment with the readers."""
    folder = tmp_path_factory.mktemp("readers")
    uv = os.environ.get("UV") or shutil.which("uv") or str(REPOSITORY / ".uv" / "bin" / "uv")
    if not Path(uv).exists():
        pytest.skip("uv is not there: scripts/install.sh gets it")
    python = str(folder / "bin" / "python")
    harbor = ["--no-deps", "--python-version", "3.12", "--target", str(folder / "harbor"), "harbor>=0.26"]
    for words in (
        ["venv", "--allow-existing", "--python", sys.executable, str(folder)],
        ["pip", "install", "--python", python, "datasets>=5", "pydantic"],
        ["pip", "install", "--python", python, *harbor],  # whose models need neither its Python nor its dependencies
    ):
        subprocess.run([uv, *words], check=True, capture_output=True, env={**os.environ, "UV_SYSTEM_CERTS": "true"})
    return python


def read_by(python: str, program: str, *words: Path) -> list[dict[str, Any]]:
    *_, output = words
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = str(Path(python).parent.parent / "harbor")
    command = [python, str(PROGRAMS / program), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return rows_of(output)


def exported(run: RunFolder, kind: Kind, folder: Path) -> dict[str, Any]:
    """Exports twice, and checks that both are the same."""
    told = export_run(run, run.evaluation, folder / "once", kind)
    assert export_run(run, run.evaluation, folder / "again", kind) == told
    assert content_of(folder / "once") == content_of(folder / "again")
    return told


def content_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def counted_rollouts(run: RunFolder) -> dict[str, int]:
    """The items that count, with their number."""
    numbers = {item_of(number).id: number for number in range(ROLLOUTS)}
    rows = json.loads(run.evaluation.read_text())["evaluation_results"]
    return {row["item_id"]: numbers[row["item_id"]] for row in rows if row["rollouts"][0]["standing"] in VALID}


def calls_of(run: RunFolder, item_id: str) -> Iterator[tuple[list[Message], Message]]:
    """Each prompt with its reply, as the record has them."""
    folder = run.attempt(f"{item_id}#0", 1)
    if (folder / "trajectory.jsonl").exists():
        record = read_trajectory(folder)
        for reply in record.replies:
            yield record.prompt(reply), record.messages[reply.message_index]
    else:
        for call in read_calls(folder).calls:
            yield (
                list(call.messages),
                {name: value for name, value in dict(call.reply or {}).items() if "reason" not in name},
            )


def plain(message: Mapping[str, Any]) -> Message:
    """A message without what says nothing."""
    kept = {name: value for name, value in message.items() if name != "weight" and value not in (None, "", [])}
    content = kept.get("content")
    if isinstance(content, list) and len(content) == 1 and content[0]["type"] == "text":
        kept["content"] = content[0]["text"]
    return kept


def test_openai(run: RunFolder, readers: str, tmp_path: Path) -> None:
    told = exported(run, Kind.OPENAI, tmp_path)

    file = tmp_path / "once" / "openai" / "conversations.jsonl"
    rows = read_by(readers, "read_openai.py", file, tmp_path / "cache", tmp_path / "read.jsonl")
    facts = rows_of(file.with_name("rollouts.jsonl"))
    counts = {name: number for name, number in counted_rollouts(run).items() if kind_of(number) in CHAT}
    assert rows == rows_of(file)
    assert (told["rollouts"], told["conversations"]) == (len(counts), len(rows))
    learned: dict[str, list[str]] = defaultdict(list)
    for row, fact in zip(rows, facts, strict=True):
        check_types(row)
        for place, message in enumerate(row["messages"]):
            if message.get("weight") == 1:
                learned[fact["item_id"]].append(json.dumps([*map(plain, row["messages"][: place + 1])], sort_keys=True))
    for item_id in counts:
        recorded = [
            json.dumps([*map(plain, [*prompt, reply])], sort_keys=True) for prompt, reply in calls_of(run, item_id)
        ]
        assert sorted(learned.pop(item_id)) == sorted(recorded)
    assert not learned


def check_types(row: Mapping[str, Any]) -> None:
    """Checks a row against the types of the package openai."""
    messages = [{name: value for name, value in one.items() if name != "weight"} for one in row["messages"]]
    validated = MESSAGES.validate_python(messages)
    assert json.loads(json.dumps(validated, default=list)) == messages  # which also reads what is validated late
    tools = row.get("tools", [])
    assert TOOLS.validate_python(tools) == tools


@pytest.mark.skipif("LLAMAFACTORY_PYTHON" not in os.environ, reason="LLAMAFACTORY_PYTHON names no interpreter")
def test_sharegpt(run: RunFolder, tmp_path: Path) -> None:
    told = exported(run, Kind.SHAREGPT, tmp_path)

    folder = tmp_path / "once" / "sharegpt"
    python = os.environ["LLAMAFACTORY_PYTHON"]
    rows = read_by(python, "read_sharegpt.py", folder, tmp_path / "cache", tmp_path / "read.jsonl")
    counts = {name: number for name, number in counted_rollouts(run).items() if kind_of(number) in CHAT}
    facts = rows_of(folder / "rollouts.jsonl")
    assert (told["rollouts"], told["calls"], told["calls_left_out"]) == (len(counts), len(rows), 0)
    calls = {name: list(calls_of(run, name)) for name in counts}
    assert Counter(fact["item_id"] for fact in facts) == {name: len(found) for name, found in calls.items()}
    for row, fact in zip(rows, facts, strict=True):
        prompt, reply = calls[fact["item_id"]][fact["call"] - 1]
        assert [Path(path).read_bytes() for path in row["_images"] or []] == pictures_in(prompt)
        [last] = row["_response"]
        if asked := reply.get("tool_calls"):
            named = [(one["function"]["name"], json.loads(one["function"]["arguments"])) for one in asked]
            found = row["_calls"][-1].rpartition("<tool_call>\n")[2].partition("\n</tool_call>")[0]
            assert [(json.loads(found)["name"], json.loads(found)["arguments"])] == named
        else:
            assert last["content"].endswith(reply["content"])
    links = {path.stat().st_ino for path in (folder / "pictures").iterdir()}
    assert len(links) == told["pictures"]


def pictures_in(prompt: list[Message]) -> list[bytes]:
    parts = [part for message in prompt for part in message["content"] or () if isinstance(part, dict)]
    found = [picture_of(part["image_url"]["url"]) for part in parts if part["type"] == "image_url"]
    return [picture for one in found if one for picture in one[1:] if isinstance(picture, bytes)]


def test_atif(run: RunFolder, readers: str, tmp_path: Path) -> None:
    told = exported(run, Kind.ATIF, tmp_path)

    rows = read_by(readers, "read_atif.py", tmp_path / "once" / "atif", tmp_path / "read.jsonl")
    counts = counted_rollouts(run)
    assert told["rollouts"] == len(counts) == len(rows)
    for row in rows:
        assert row["trajectory"] == json.loads(Path(row["path"]).read_text())
        item_id = row["trajectory"]["extra"]["item_id"]
        agents = [step for step in row["trajectory"]["steps"] if step["source"] == "agent"]
        assert len(agents) == len(list(calls_of(run, item_id)))
        counts.pop(item_id)
    shown = list((tmp_path / "once" / "atif").rglob("images/*.png"))
    assert all(hashlib.sha256(path.read_bytes()).hexdigest() == path.stem for path in shown)
    assert len({path.stat().st_ino for path in shown}) == len({path.name for path in shown}) == told["pictures"]


def test_osworld(run: RunFolder, tmp_path: Path) -> None:
    told = exported(run, Kind.OSWORLD, tmp_path)

    tree = tmp_path / "once" / "osworld" / "0" / "pyautogui" / "screenshot"
    [model] = tree.iterdir()
    found = shown_results(model)
    rows = json.loads(run.evaluation.read_text())["evaluation_results"]
    sessions = {item_of(number).id for number in range(ROLLOUTS) if kind_of(number) is KINDS[2]}  # which did not act
    counts = [row for row in rows if row["rollouts"][0]["standing"] in VALID and row["item_id"] not in sessions]
    expected: dict[str, list[float]] = defaultdict(list)
    for row in counts:
        expected[str(row["domain"])].append(row["rollouts"][0]["score"])
    assert sorted(map(sorted, found.values())) == sorted(map(sorted, expected.values()))
    assert told["rollouts"] == len(counts)
    for path in model.rglob("traj.jsonl"):
        for line in rows_of(path):
            assert (path.parent / line["screenshot_file"]).is_file()


def shown_results(model: Path) -> dict[str, list[float]]:
    """What OSWorld's show_result.py counts: each task's folder with a result.txt that is a number, by domain."""
    return {
        domain.name: [
            float((task / "result.txt").read_text()) for task in domain.iterdir() if (task / "result.txt").is_file()
        ]
        for domain in model.iterdir()
    }
