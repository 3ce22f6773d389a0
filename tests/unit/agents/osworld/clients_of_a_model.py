"""Run in a process of its own, with a gateway's port: asks a model in all the ways that agents do, and prints what came of each."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import socket
import ssl
import sys
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rollout_tasks.agents.osworld import model_proxy

CHAT = {"model": "m", "messages": [{"role": "user", "content": "6 * 7?"}]}
PATH = "/v1/chat/completions"


def with_urllib(url: str, *, strict: bool = False) -> str:
    context = ssl.create_default_context()
    if strict:
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    request = urllib.request.Request(url, json.dumps(CHAT).encode(), {"Content-Type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request, context=context) as response:  # noqa: S310
        return text_of(json.load(response))


def with_requests(url: str, **options: Any) -> str:
    import requests

    return text_of(requests.post(url, timeout=20, **(options or {"json": CHAT})).json())


def with_httpx(url: str) -> str:
    import httpx

    return text_of(httpx.post(url, json=CHAT, timeout=20).json())


def with_aiohttp(url: str) -> str:
    import aiohttp

    async def ask() -> Any:
        async with aiohttp.ClientSession() as client, client.post(url, json=CHAT) as response:
            return await response.json()

    return text_of(asyncio.run(ask()))


def with_openai(**options: Any) -> str:
    import openai

    client = openai.OpenAI(api_key="sk-of-the-agent", max_retries=0, **options)
    return str(client.chat.completions.create(**CHAT).choices[0].message.content)


def with_a_stream() -> str:
    import openai

    client = openai.OpenAI(api_key="sk-of-the-agent", max_retries=0)
    pieces = client.chat.completions.create(**CHAT, stream=True)
    return "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)


def of_another_path() -> str:
    import requests

    return str(requests.get("https://storage.example/pictures/1", timeout=20).status_code)


def twice_on_one_connection() -> str:
    import requests

    with requests.Session() as session:
        return " ".join(text_of(session.post(f"https://a.example{PATH}", json=CHAT, timeout=20).json()) for _ in "12")


def held_back() -> str:
    """Whether the proxy's ends of connections wait with small pieces, as replies begin with one."""
    import requests

    with requests.Session() as session:
        session.post(f"https://a.example{PATH}", json=CHAT, timeout=20)
        listening, connected = set(), []
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (numbers)
            with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as end:
                if end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    listening.add(end.getsockname())
                else:
                    waits = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0
                    connected.append((end.getsockname(), waits))
    return str({waits for at, waits in connected if at in listening})


def resolved() -> str:
    found = [socket.getaddrinfo(host="a.example", port="https")[0][4], socket.gethostbyname("a.example")]
    return json.dumps(found)


def text_of(answer: Any) -> str:
    return str(answer["choices"][0]["message"]["content"])


WAYS: dict[str, Callable[[], str]] = {
    "urllib": lambda: with_urllib(f"https://api.openai.com{PATH}"),
    "urllib, strictly": lambda: with_urllib(f"https://api.openai.com{PATH}", strict=True),
    "requests": lambda: with_requests(f"https://api.openai.com{PATH}"),
    "requests to an address": lambda: with_requests(f"http://101.132.136.195:7908{PATH}"),
    "requests in pieces": lambda: with_requests(f"https://a.example{PATH}", data=iter([json.dumps(CHAT).encode()])),
    "requests to another port": lambda: with_requests(f"https://a.example:8443{PATH}"),
    "httpx": lambda: with_httpx(f"https://policy.app.example{PATH}"),
    "aiohttp": lambda: with_aiohttp(f"https://api.openai.com{PATH}"),
    "openai": with_openai,
    "openai elsewhere": lambda: with_openai(base_url="http://model/api/v3"),
    "a stream": with_a_stream,
    "one connection": twice_on_one_connection,
    "held back": held_back,
    "another path": of_another_path,
    "names": resolved,
}


def main() -> None:
    """Arguments: the gateway's port, and a folder."""
    model_proxy.GATEWAY_PORT = int(sys.argv[1])
    proxy = model_proxy.ModelProxy("/sessions/s", "the-token", Path(sys.argv[2]))
    proxy.start()
    found = {}
    for name, way in WAYS.items():
        try:
            found[name] = way()
        except Exception as error:  # noqa: BLE001 - what came of it
            found[name] = f"{type(error).__name__}: {error}"
    compressed = gzip.compress(json.dumps(CHAT).encode())
    found["compressed"] = with_requests(
        f"https://a.example{PATH}", data=compressed, headers={"Content-Encoding": "gzip"}
    )
    found["elsewhere"] = proxy.elsewhere
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
