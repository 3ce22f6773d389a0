"""`rollouts model try`: a checkpoint that transformers loads, and Pythons that cannot."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from rollout_tasks.cli import model, program
from tests.cpu_vllm import MINUTES, run_script, vllm_environment

TINY_TEXT_MODEL = Path(__file__).with_name("tiny_text_model.py")
TINY_MODEL = Path(__file__).with_name("serving") / "tiny_model.py"


class Done(NamedTuple):
    code: int
    stdout: str
    stderr: str


Try = Callable[..., Done]


@pytest.fixture
def try_model(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Try:
    def try_model(*words: str | Path) -> Done:
        monkeypatch.setattr("sys.argv", ["model", "try", *map(str, words)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            program.run(model.application)
        captured = capfd.readouterr()
        return Done(int(ended.value.code or 0), captured.out, captured.err)

    return try_model


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "step-200"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def program_at(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_what_is_no_checkpoint_is_said(try_model: Try, tmp_path: Path) -> None:
    missing, empty = try_model(tmp_path / "none", "w"), try_model(tmp_path, "w")

    assert (missing.code, missing.stderr) == (2, f"error: CHECKPOINT: {tmp_path / 'none'} is no folder\n")
    assert (empty.code, empty.stderr) == (
        2,
        f"error: CHECKPOINT: {tmp_path} has no config.json, so it is no checkpoint\n",
    )


def test_a_python_without_the_packages_says_which_is_missing(try_model: Try, checkpoint: Path, tmp_path: Path) -> None:
    bare = program_at(tmp_path / "python", f'exec {sys.executable} -I -S "$@"')

    done = try_model(checkpoint, "w", "--python", bare)
    gone = try_model(checkpoint, "w", "--python", tmp_path / "none")

    assert (done.code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: {bare} has no package torch: install it there, or name the Python of")
    assert (gone.code, gone.stderr) == (2, f"error: --python: {tmp_path / 'none'} is no program\n")


def test_the_python_beside_vllm_is_taken_where_this_one_lacks_the_packages(
    try_model: Try, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollout_tasks.models.local_answer.find_spec", lambda _package: None)
    monkeypatch.setenv("PATH", "/nowhere")
    nobody = try_model(checkpoint, "w")
    assert nobody.code == 2
    assert "torch and transformers are not installed here, and no vllm is on the PATH" in nobody.stderr

    environment = tmp_path / "environment"
    environment.mkdir()
    program_at(environment / "vllm", "exit 1")
    told = {"answer": "42", "cut_off": False, "prompt_tokens": 3, "completion_tokens": 1, "load_seconds": 0.5}
    told |= {"seconds": 0.25, "device": "cpu", "class": "SomeModel"}
    program_at(environment / "python", f"echo '{json.dumps(told)}'")
    monkeypatch.setenv("PATH", str(environment))
    found = try_model(checkpoint, "w")
    assert (found.code, found.stdout) == (0, "42\n")
    assert found.stderr == "3 tokens asked and 1 answered in 0.2 s, after 0.5 s of loading, by SomeModel on cpu\n"


def test_a_python_that_ends_or_hangs_says_so_and_leaves_nothing(
    try_model: Try, checkpoint: Path, tmp_path: Path
) -> None:
    killed = try_model(checkpoint, "w", "--python", program_at(tmp_path / "killed", "kill -9 $$"))
    silent = try_model(checkpoint, "w", "--python", program_at(tmp_path / "silent", "exit 3"))
    hangs = try_model(
        checkpoint,
        "w",
        "--timeout",
        "1",
        "--python",
        program_at(tmp_path / "hangs", f"echo $$ > {tmp_path}/pid; exec sleep 600"),
    )

    assert f"{tmp_path}/killed was ended by signal 9 without an answer: is there enough memory?" in killed.stderr
    assert f"{tmp_path}/silent ended with exit code 3 without an answer" in silent.stderr
    assert hangs.stderr == f"error: {checkpoint} has not answered within 1 s: --timeout gives it longer\n"
    assert {killed.code, silent.code, hangs.code} == {2}
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def python_of_vllm(folder: Path) -> Path:
    vllm = vllm_environment()
    variables = f"PYTHONPATH={vllm / 'names'} OMP_NUM_THREADS=1"
    return program_at(folder / "python", f'{variables} exec {vllm / "bin" / "python"} "$@"')


def picture_file(path: Path, red: int) -> Path:
    """A picture that has more red the larger `red` is."""
    from PIL import Image  # here, because only the slow test needs it

    grey = Image.linear_gradient("L").resize((160, 120))
    Image.merge("RGB", (Image.new("L", grey.size, red), grey, grey)).save(path)
    return path


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES)
def test_a_checkpoint_that_sees_is_asked_about_a_picture(try_model: Try, tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    run_script(vllm_environment(), TINY_MODEL, folder, "1")
    python = python_of_vllm(tmp_path)
    dark, light = picture_file(tmp_path / "dark.png", 0), picture_file(tmp_path / "light.png", 255)

    first = try_model(folder, "say yes", "--picture", dark, "--python", python, "--json")
    other = try_model(folder, "say yes", "--picture", light, "--python", python)
    (folder / "model.safetensors").write_bytes(b"cut off")
    failed = try_model(folder, "say yes", "--python", python)

    assert (first.code, other.code) == (0, 0), first.stderr + other.stderr
    told = json.loads(first.stdout)
    assert told["answer"]
    assert told["answer"] != other.stdout.removesuffix("\n"), "it sees the picture"
    assert told["model_class"] == "Qwen2VLForConditionalGeneration"
    assert told["prompt_tokens"] > 10
    assert 0 < told["completion_tokens"] <= 1_024
    assert other.stderr.endswith(" of loading, by Qwen2VLForConditionalGeneration on cpu\n")
    assert (failed.code, failed.stdout) == (2, "")
    assert failed.stderr.splitlines()[-1].startswith(f"error: {folder}: ")
    assert "Traceback" not in failed.stderr


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES)
def test_a_model_of_texts_goes_on_with_the_words_and_takes_no_picture(try_model: Try, tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    run_script(vllm_environment(), TINY_TEXT_MODEL, folder)
    python = python_of_vllm(tmp_path)
    picture = picture_file(tmp_path / "dark.png", 0)

    done = try_model(folder, "any text", "--python", python, "--json")
    refused = try_model(folder, "any text", "--picture", picture, "--python", python)

    told = json.loads(done.stdout)
    assert (done.code, told["model_class"], told["completion_tokens"]) == (0, "Qwen2ForCausalLM", 1), done.stderr
    assert told["cut_off"] is False
    says = f"error: {folder}: the model sees no pictures: its config.json has no vision_config\n"
    assert (refused.code, refused.stdout) == (2, "")
    assert refused.stderr.endswith(says)
