"""What vLLM loads of this project: only the program that started a server may change it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rollout_tasks.models.serving.vllm_plugin.rollouts_control_guard import ControlGuard

SECRET = b"Bearer secret"


def answers(monkeypatch: pytest.MonkeyPatch, path: str, *headers: tuple[bytes, bytes], kind: str = "http") -> list[Any]:
    """What comes back for a request: "passed" if it gets as far as vLLM."""
    monkeypatch.setenv("ROLLOUTS_CONTROL_SECRET", "secret")
    sent: list[Any] = []

    async def vllm(_scope: Any, _receive: Any, send: Any) -> None:
        await send("passed")

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(ControlGuard(vllm)({"type": kind, "path": path, "headers": list(headers)}, None, send))
    return sent


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/health", "/metrics"])
def test_what_is_no_control_passes(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    assert answers(monkeypatch, path) == ["passed"]


@pytest.mark.parametrize(
    "path",
    [
        "/pause",
        "/collective_rpc",
        "/v1",
        "/v1.",
        "//v1/models",
        "/health/",
        "/weight_checker",
        "/tokenize",
        "/",
        "",
        "/docs",
    ],
)
@pytest.mark.parametrize("given", [b"", b"Bearer", b"Bearer secret2", b"bearer secret", b"Bearer \xff", b"secret"])
def test_control_needs_the_secret(monkeypatch: pytest.MonkeyPatch, path: str, given: bytes) -> None:
    start, body = answers(monkeypatch, path, (b"authorization", given))

    assert start["status"] == 403
    assert b"only the program that started this server" in body["body"]
    assert answers(monkeypatch, path, (b"authorization", SECRET)) == ["passed"]


def test_a_connection_that_stays_open_needs_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answers(monkeypatch, "/control", kind="websocket") == [{"type": "websocket.close", "code": 1008}]
    assert answers(monkeypatch, "/anything", kind="lifespan") == ["passed"]
