"""Few large bodies are read at a time, so that slow ones do not fill the memory."""

from __future__ import annotations

import asyncio
import threading

import pytest
from starlette.requests import Request
from starlette.types import Message

from rollout_tasks.service.lending import http_requests
from rollout_tasks.service.lending.http_requests import body_of, object_in
from rollout_tasks.service.lending.refusal import Refusal


def request_of(*pieces: bytes, ends: bool = True) -> Request:
    left = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]

    async def receive() -> Message:
        if left:
            return left.pop(0)
        if not ends:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    return Request({"type": "http", "headers": []}, receive)


def test_large_bodies_have_a_most_and_small_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_requests, "_large_bodies", threading.BoundedSemaphore(1))
    large, small = b"x" * 50_000, b"x" * 1_000

    async def read() -> None:
        slow = asyncio.create_task(body_of(request_of(large, large, ends=False)))
        await asyncio.sleep(0.05)
        with pytest.raises(Refusal, match="large bodies are being read already") as refusal:
            await body_of(request_of(large, large))
        assert refusal.value.status == 503
        assert await body_of(request_of(small, small)) == small + small
        slow.cancel()
        await asyncio.wait({slow})
        assert await body_of(request_of(large, large)) == large + large

    asyncio.run(read())


def test_one_owners_large_bodies_leave_some_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_requests, "_MOST_LARGE_OF_OWNER", 1)
    large = b"x" * 70_000

    async def read() -> None:
        slow = asyncio.create_task(body_of(request_of(large, ends=False), "alice"))
        await asyncio.sleep(0.05)
        with pytest.raises(Refusal, match="of your large bodies are being read") as refusal:
            await body_of(request_of(large), "alice")
        assert refusal.value.status == 429
        assert await body_of(request_of(large), "bob") == large
        slow.cancel()
        await asyncio.wait({slow})
        assert await body_of(request_of(large), "alice") == large

    asyncio.run(read())


def test_what_is_not_kept_takes_no_large_bodys_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_requests, "_large_bodies", threading.BoundedSemaphore(1))
    large = b"x" * 70_000

    async def read() -> None:
        unknown = asyncio.create_task(body_of(request_of(large, ends=False), largest=1_000))
        await asyncio.sleep(0.05)
        assert await body_of(request_of(large)) == large
        unknown.cancel()
        await asyncio.wait({unknown})

    asyncio.run(read())


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": [' + 19_990 * b"1," + b"1]}",
        b'{"text": "' + 200_000 * b",[{" + b'"}',  # long texts are one value
        b'{"text": "' + 200_000 * b'\\",' + b'"}',
    ],
)
def test_long_texts_and_many_values_are_read(body: bytes) -> None:
    assert object_in(body)


@pytest.mark.parametrize("piece", [b"1,", b"[],", b"{},", b'"",', b'"\\"[",', b"[", b'{"":'])
def test_bodies_have_a_most_of_values(piece: bytes) -> None:
    with pytest.raises(Refusal, match="more than 20,000 values") as refusal:
        object_in(b'{"a": [' + 300_000 * piece + b"1]}")
    assert refusal.value.status == 422
