"""The command that serves a checkpoint with vLLM, and what of it is decided here."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from rollout_tasks.errors import UserError
from vm_pool.processes import environment_for_guests

END_SECONDS = 20
"""How long a server that is asked to end may take for the calls that it has."""
_DECIDED = (
    *("--host", "--port", "--served-model-name", "--api-key", "--uds", "--config", "--shutdown-timeout", "--model"),
    *("--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--root-path", "--grpc", "--headless"),
)
"""Options of `vllm serve` that this program sets, or that would set them or pass its guard by."""
_SHARE = ("--gpu-memory-utilization",)
_PARALLEL = (
    ("--tensor-parallel-size", "-tp"),
    ("--pipeline-parallel-size", "-pp"),
    ("--data-parallel-size", "-dp"),
)
_USUAL_SHARE = 0.9
_PLUGIN = Path(__file__).with_name("vllm_plugin")
"""Has what vLLM loads of this project."""


def program() -> str:
    """Returns the path of vLLM's program.

    Raises:
        UserError: It is not there.
    """
    found = shutil.which("vllm")
    if found is None:
        raise UserError(
            "vllm is not on the PATH: install it, as with pip install vllm, or put the bin folder of its environment there"
        )
    return found


def check_checkpoint(checkpoint: str) -> None:
    """Checks that a checkpoint's folder is one, if it is a folder; else it is a name that vLLM looks for at its hub.

    Raises:
        UserError: There is no such folder, or it is no checkpoint.
    """
    folder = Path(checkpoint)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(f"CHECKPOINT: {checkpoint} has no config.json, so it is no checkpoint")
    elif folder.exists() or checkpoint.startswith((".", "/", "~")) or checkpoint.count("/") != 1:
        raise UserError(f"CHECKPOINT: there is no folder {checkpoint}")


def check_options(options: Sequence[str]) -> None:
    """Checks the options that are passed on to vLLM.

    Raises:
        UserError: One of them is decided by this program.
    """
    for option in options:
        name = option.partition("=")[0].replace("_", "-")
        whole = next(
            (known for known in (*_DECIDED, *_SHARE, *(one[0] for one in _PARALLEL)) if _begins(known, name)), None
        )
        if whole in _DECIDED:
            raise UserError(f"{whole} of vllm serve is set by this program: see --host, --port, --model and CHECKPOINT")
        if whole is not None and whole != name:
            raise UserError(f"{name} of vllm serve: write {whole}")


def gpus_of_each(options: Sequence[str]) -> int:
    """Returns how many GPUs a server with these options takes.

    Raises:
        UserError: A number is none.
    """
    return math.prod(_whole(options, names) for names in _PARALLEL)


def with_share_of_gpu(options: Sequence[str]) -> list[str]:
    """Returns the options of a server that has GPUs, with the part of their memory that it takes: vLLM's default differs."""
    given = _value(options, _SHARE) is not None
    return [*options, *(() if given else (_SHARE[0], str(_USUAL_SHARE)))]


def share_of_gpu(options: Sequence[str]) -> float:
    """Returns the part of a GPU's memory that a server with these options takes.

    Raises:
        UserError: It is no number above 0 and at most 1.
    """
    given = _value(options, _SHARE)
    if given is None:
        return _USUAL_SHARE
    try:
        share = float(given)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UserError(f"{_SHARE[0]} of vllm serve must be a number above 0 and at most 1, got {given!r}")
    return share


def serve_command(vllm: str, checkpoint: str, *, host: str, port: int, model: str, options: Sequence[str]) -> list[str]:
    """Returns the command for one server.

    Args:
        vllm: vLLM's program.
        checkpoint: What it serves.
        host: The address to listen at.
        port: Its port.
        model: The name under which it serves the model.
        options: More options of `vllm serve`.
    """
    return [
        *(vllm, "serve", checkpoint, "--host", host, "--port", str(port), "--served-model-name", model),
        *("--shutdown-timeout", str(END_SECONDS)),
        *("--middleware", "rollouts_control_guard.ControlGuard"),
        *options,
    ]


def serve_environment(key: str | None, secret: str, gpus: Sequence[int]) -> dict[str, str]:
    """Returns the environment of a server: without this project's secrets, but for those that it asks for.

    Args:
        key: What its clients must send; None for no key.
        secret: What must be sent to change it, as its weights.
        gpus: The GPUs that it may use; empty where there is none.
    """
    environment: Mapping[str, str] = environment_for_guests()
    paths = (str(_PLUGIN), environment.get("PYTHONPATH", ""))
    server_variables = {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_USE_RUST_FRONTEND": "0",  # it would not load what guards the server
        "ROLLOUTS_CONTROL_SECRET": secret,
    }
    server_variables |= {"VLLM_API_KEY": key} if key else {}
    if gpus:
        server_variables |= {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
        }  # as nvidia-smi counts
    return {"VLLM_NO_USAGE_STATS": "1", **environment, **server_variables}


def _begins(known: str, name: str) -> bool:
    """Whether an option is this one, whole or cut short as argparse allows it."""
    return name.startswith("--") and len(name) > len("--") + 2 and known.startswith(name)


def _value(options: Sequence[str], names: Sequence[str]) -> str | None:
    """Returns the last value of an option, whichever of its spellings is used; None if it is not there."""
    found = None
    for place, option in enumerate(options):
        name, equals, value = option.partition("=")
        if name.replace("_", "-") in names:
            found = value if equals else next(iter(options[place + 1 :]), "")
    return found


def _whole(options: Sequence[str], names: Sequence[str]) -> int:
    given = _value(options, names)
    if given is None:
        return 1
    if not given.isascii() or not given.isdecimal() or not 1 <= int(given) <= 1_024:
        raise UserError(f"{names[0]} of vllm serve must be a whole number from 1 to 1024, got {given!r}")
    return int(given)
