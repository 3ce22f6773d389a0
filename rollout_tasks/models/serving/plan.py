"""Which servers of a checkpoint this machine is to run: how many, with which GPUs, at which ports."""

from __future__ import annotations

import functools
import ipaddress
import secrets
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rollout_tasks.errors import UserError
from rollout_tasks.models.serving import vllm_command
from rollout_tasks.models.serving.gpus import gpus, groups_with_room
from rollout_tasks.models.serving.served_replicas import Server


def planned(
    checkpoint: str,
    options: Sequence[str],
    *,
    replicas: int | None,
    model: str,
    host: str,
    first_port: int,
    key: str | None,
) -> list[Server]:
    """Returns the servers to start.

    Args:
        checkpoint: What they serve: a folder, or a name at vLLM's hub.
        options: More options of `vllm serve`.
        replicas: How many; None: as many as GPUs have room for, one without GPUs.
        model: The name under which they serve the model.
        host: The address at which they listen.
        first_port: The first one's port, the next ones' follow; 0: free ports.
        key: The key that their clients must send, if any.

    Raises:
        UserError: They cannot be started like that.
    """
    vllm_command.check_options(options)
    vllm_command.check_checkpoint(checkpoint)
    _check_host(host, key)
    program = vllm_command.program()
    groups = _groups(options, replicas)
    ports = _ports(host, first_port, len(groups))
    secrets_of_each = [secrets.token_urlsafe(32) for _ in groups]
    literal = f"[{host}]" if ":" in host else host
    return [
        Server(
            base_url=f"http://{literal}:{port}/v1",
            command=functools.partial(
                vllm_command.serve_command,
                program,
                host=host,
                port=port,
                model=model,
                options=vllm_command.with_share_of_gpu(options) if group else options,
            ),
            options=options,
            environment=vllm_command.serve_environment(key, secret, group),
            secret=secret,
            gpus=group,
        )
        for port, group, secret in zip(ports, groups, secrets_of_each, strict=True)
    ]


def name_of(checkpoint: str) -> str:
    """Returns what a checkpoint is called: the last part of its path or name."""
    folder = Path(checkpoint)
    return (folder.resolve() if folder.is_dir() else folder).name


def located(checkpoint: str) -> str:
    """Returns where a checkpoint is, whatever becomes of the links to it; a name at vLLM's hub stays as it is."""
    folder = Path(checkpoint)
    return str(folder.resolve()) if folder.is_dir() else checkpoint


def _groups(options: Sequence[str], replicas: int | None) -> list[tuple[int, ...]]:
    """Returns the GPUs of each server."""
    share, each = vllm_command.share_of_gpu(options), vllm_command.gpus_of_each(options)
    found = gpus()
    if not found:
        return [()] * (replicas or 1)
    room = groups_with_room(found, share, each)
    wanted = replicas or len(room)
    if not room or wanted > len(room):
        free = ", ".join(f"{gpu.index}: {gpu.free:,} of {gpu.total:,} MiB" for gpu in found)
        raise UserError(
            f"--replicas: there is room for {len(room)}, as each takes {each} {'GPU' if each == 1 else 'GPUs'} with"
            f" {share:.0%} of its memory free ({free}); use fewer, or less memory, as in -- --gpu-memory-utilization 0.5"
        )
    return room[:wanted]


def _check_host(host: str, key: str | None) -> None:
    try:
        address = ipaddress.ip_address(socket.getaddrinfo(host, None)[0][4][0])
    except (OSError, ValueError, UnicodeError):
        raise UserError(f"--host: {host[:100]!r} is no address of this machine") from None
    if address.is_unspecified:
        raise UserError(f"--host: workers cannot reach {host}: name the address by which they reach this machine")
    if not address.is_loopback and not key:
        raise UserError(
            f"--host: who reaches {host} could use the model: set OPENAI_API_KEY here and on the workers' machines"
        )


def _ports(host: str, first: int, count: int) -> list[int]:
    """Returns ports that are free now."""
    if first + count > 65536:
        raise UserError(f"--port: there are no {count} ports from {first} on")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as opened:
        found = []
        for port in range(first, first + count) if first else [0] * count:
            listener = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((host, port))
            except OSError as error:
                what = f"--port: {port}" if port else f"--host: {host}"
                raise UserError(f"{what} cannot be listened at: {error.strerror}") from error
            found.append(listener.getsockname()[1])
    return found
