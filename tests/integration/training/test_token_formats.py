"""A thousand rollouts in the formats of tokens, read by what they are for: verl, verifiers with prime-rl's rule, and torch."""

from __future__ import annotations

import json
import math
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.runs.finalize import score_run
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.exports.formats import Kind
from rollout_tasks.training.exports.run_export import export_run
from tests.conftest import REPOSITORY
from tests.package_environments import package_environment, run
from tests.torchvision_operators import OPERATORS_OF_TORCHVISION
from tests.unit.training.sampled_rollouts import Made, SampledReply, write_rollouts

MINUTES = 30
ROLLOUTS = 1_000
VERL, TORCH, TORCHVISION = "0.9.1", "2.13.0", "0.28.0"
VERIFIERS, RENDERERS = "0.4.0", "0.1.12"
HERE = Path(__file__).parent

parquet = pytest.importorskip("pyarrow.parquet")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 * MINUTES)]


@dataclass(frozen=True)
class Written:
    """The run."""

    folder: RunFolder
    counting: list[Made]


@pytest.fixture(name="written", scope="module")
def _written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder, counting = write_rollouts(tmp_path_factory.mktemp("runs") / "night-1", ROLLOUTS)
    score_run(folder, "exact_match")
    return Written(folder, counting)


@pytest.fixture(name="rows_folder", scope="module")
def _rows_folder(written: Written, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("rows")
    for kind in (Kind.VERL, Kind.PRIME_RL):
        told = export_run(written.folder, written.folder.evaluation, target, kind)
        assert (told["rollouts"], told["left_out"]) == (ROLLOUTS, {"infrastructure_loss": ROLLOUTS // 50})
    return target


@pytest.fixture(name="verl", scope="module")
def _verl() -> Path:
    """The Python of the environment that has verl, and what this project needs: 4 GB."""
    needed = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
    steps = [
        [f"verl[verl-core]=={VERL}", f"torch=={TORCH}"],
        needed,  # in a second step, because the pins of both on `packaging` contradict each other
        ["--no-deps", f"torchvision=={TORCHVISION}"],
    ]
    return package_environment(f"verl-{VERL}", steps, minutes=MINUTES)


@pytest.fixture(name="site", scope="module")
def _site(verl: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the path of verl's Python, where torchvision is built for another torch."""
    folder = tmp_path_factory.mktemp("site")
    if run(verl, "-c", "import torch; print(torch.version.cuda)").strip() == "None":
        (folder / "sitecustomize.py").write_text(OPERATORS_OF_TORCHVISION)
    return folder


def described(rollouts: Iterable[Made], path: Path) -> Path:
    """Writes rollouts as JSON for a program."""
    path.write_text(
        json.dumps(
            [
                {
                    "folder": f"{made.item_id}_night-1-{made.index}",
                    "reward": made.reward,
                    "calls": [_described(call) for call in made.calls],
                }
                for made in rollouts
            ]
        )
    )
    return path


def _described(call: SampledReply) -> dict[str, Any]:
    return {**vars(call), "messages": [*map(dict, call.messages)], "reply": dict(call.reply)}


def rows_of(path: Path) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Returns rows by rollout."""
    found = defaultdict(list)
    for row in parquet.read_table(path).to_pylist():
        where = row.get("extra_fields", row)
        found[where["item_id"], row.get("rollout", row.get("session_id"))].append(row)
    return found


def check_calls(made: Made, rows: list[dict[str, Any]]) -> None:
    """Checks that each call is in one row, with the prompt, the pictures and the tokens that it had, and nothing else is."""
    seen = []
    for row in rows:
        ids, mask, reached = row["token_ids"], row["mask"], 0
        for output in row["outputs"]:
            call = made.calls[output["call"] - 1]
            start, end = output["start"], output["end"]
            assert (ids[:start], ids[start:end]) == (call.prompt_ids, call.output_ids)
            assert mask[reached:end] == [False] * (start - reached) + [True] * (end - start)
            assert (row["logprobs"] or [])[start:end] == call.logprobs
            images = [Path(name).stem for name in row["images"]]
            assert images[: len(call.pictures)] == call.pictures
            seen.append(output["call"])
            reached = end
        assert len(ids) == reached
    assert sorted(seen) == list(range(1, len(made.calls) + 1))


def test_prime_rls_rows_have_each_call_once(written: Written, rows_folder: Path) -> None:
    rows = rows_of(rows_folder / "prime-rl" / "samples.parquet")

    assert len(rows) == ROLLOUTS
    for made in written.counting:
        own = rows[made.item_id, made.index]
        check_calls(made, own)
        assert {row["reward"] for row in own} == {made.reward}


def test_verls_rows_have_each_call_once(written: Written, rows_folder: Path) -> None:
    rows = rows_of(rows_folder / "verl" / "rollouts.parquet")

    assert len(rows) == ROLLOUTS
    for made in written.counting:
        own = rows[made.item_id, made.index]
        check_calls(made, [_as_sample(row) for row in own])
        assert [row["key"] for row in own] == [f"{own[0]['uid']}_{made.index}_{at}" for at in range(len(own))]
        assert {row["reward_score"] for row in own} == {made.reward}


def _as_sample(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row of verl's as one of prime-rl's."""
    before, logprobs = len(row["prompt_ids"]), row["response_logprobs"]
    outputs = [
        {**one, "start": one["start"] + before, "end": one["end"] + before} for one in row["extra_fields"]["outputs"]
    ]
    return {
        "token_ids": row["prompt_ids"] + row["response_ids"],
        "mask": [False] * before + list(map(bool, row["response_mask"])),
        "logprobs": None if logprobs is None else [0.0] * before + logprobs,
        "images": row["multi_modal_data"]["images"],
        "outputs": outputs,
    }


def test_pictures_are_on_the_disk_once(written: Written, rows_folder: Path) -> None:
    shown = {name for made in written.counting for call in made.calls for name in call.pictures}
    files = {file.stat().st_ino for run in written.folder.path.rglob("step_*.png") for file in [run]}

    for name in ("verl", "prime-rl"):
        images = list((rows_folder / name / "images").iterdir())
        assert {image.stem for image in images} == shown
        assert {image.stat().st_ino for image in images} <= files


def test_verifiers_makes_the_same_samples(written: Written, rows_folder: Path, tmp_path: Path) -> None:
    """Its message graph gets the calls; prime-rl trains on its branches, and on each sampled message in the first that has it."""
    packages = [f"verifiers=={VERIFIERS}", f"renderers=={RENDERERS}"]
    python = package_environment(f"verifiers-{VERIFIERS}", [packages], minutes=MINUTES)
    calls = described(written.counting, tmp_path / "calls.json")

    made_by_verifiers = json.loads(run(python, HERE / "verifiers_program.py", calls))

    rows = rows_of(rows_folder / "prime-rl" / "samples.parquet")
    several = 0
    for made, theirs in zip(written.counting, made_by_verifiers, strict=True):
        ours = rows[made.item_id, made.index]
        samples = [
            {
                "token_ids": row["token_ids"],
                "mask": row["mask"],
                "logprobs": row["logprobs"] or [0.0] * len(row["mask"]),
            }
            for row in ours
        ]
        several += len(samples) > 1
        for way in theirs.values():
            assert sorted(way, key=str) == sorted(samples, key=str), (made.item_id, made.index)
    assert several > ROLLOUTS / 5


def test_verl_and_torch_read_what_is_exported(
    written: Written, rows_folder: Path, verl: Path, site: Path, tmp_path: Path
) -> None:
    export = "import sys; from rollout_tasks.cli.main import main; main()"
    for name in ("first", "second"):
        told = run(
            verl,
            "-c",
            export,
            *("export", written.folder.path, "--format", "seed", "--to", tmp_path / name, "--json"),
            PYTHONPATH=str(REPOSITORY),
        )
    assert json.loads(told)["rollouts"] == ROLLOUTS
    (tmp_path / "first" / "verl").symlink_to(rows_folder / "verl")
    calls = described(written.counting, tmp_path / "calls.json")

    read = json.loads(
        run(verl, HERE / "token_formats_program.py", tmp_path / "first", calls, PYTHONPATH=str(site)).splitlines()[-1]
    )

    assert read["dart"] == ROLLOUTS
    check_advantages(written.counting, read["verl"]["advantages"])
    files = {file.relative_to(tmp_path / "second"): file for file in (tmp_path / "second").rglob("*") if file.is_file()}
    for place, file in files.items():
        assert file.read_bytes() == (tmp_path / "first" / place).read_bytes(), place


def check_advantages(counting: list[Made], advantages: Mapping[str, float]) -> None:
    """Checks that verl gives each row its rollout's advantage over the mean of the group's rollouts, not of its rows."""
    rewards, found = defaultdict(dict), defaultdict(set)
    for key, advantage in advantages.items():
        uid, session, _ = key.split("_")
        found[uid, int(session)].add(round(advantage, 4))
    by_group = defaultdict(dict)
    for (uid, session), values in found.items():
        (by_group[uid][session],) = values
    for made in counting:
        rewards[made.item_id][made.index] = made.reward
    expected = []
    for group in rewards.values():
        mean, spread = statistics.mean(group.values()), statistics.stdev(group.values())
        expected.append({index: round((reward - mean) / (spread + 1e-6), 4) for index, reward in group.items()})
    theirs = sorted((sorted(group.items()) for group in by_group.values()), key=str)
    ours = sorted((sorted(group.items()) for group in expected), key=str)
    assert len(theirs) == len(ours)
    for one, other in zip(theirs, ours, strict=True):
        assert all(a == c and math.isclose(b, d, abs_tol=2e-3) for (a, b), (c, d) in zip(one, other, strict=True))
