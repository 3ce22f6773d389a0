"""What the address for MCP clients lets through, and what it says where the package `mcp` is missing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rollout_tasks.service.lending.mcp_address import checked, raise_if_foreign_page
from rollout_tasks.service.lending.refusal import Refusal


@pytest.mark.parametrize(
    "origin", [None, "http://localhost:6274", "https://127.0.0.1", "http://[::1]:80", "http://LOCALHOST"]
)
def test_programs_and_pages_of_this_machine_may_call(origin: str | None) -> None:
    raise_if_foreign_page(origin)


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "http://localhost.evil.example",
        "http://127.0.0.1@evil.example",
        "http://[",
        "x",
    ],
)
def test_pages_of_other_machines_may_not(origin: str) -> None:
    with pytest.raises(Refusal) as refused:
        raise_if_foreign_page(origin)
    assert refused.value.status == 403


def test_a_body_is_handed_on_as_it_was_understood() -> None:
    assert checked(b'{"a": 1, "a": 2, "b": "\\u00e9 \\ud83d\\ude00"}') == '{"a": 2, "b": "é 😀"}'.encode()


@pytest.mark.parametrize("half", [b'"\\ud83d"', b'{"\\ude00": 1}', b'["x\\ud83dx"]'])
def test_half_of_a_surrogate_pair_is_refused(half: bytes) -> None:
    with pytest.raises(Refusal, match="half of a surrogate pair") as refused:
        checked(b'{"a": %s}' % half)
    assert refused.value.status == 422


WITHOUT_PACKAGE = """
import asyncio, httpx, json, redis, sys
sys.modules["mcp"] = None
from rollout_tasks.http_services.token_holders import TokenHolders
from rollout_tasks.http_services.token_store import TokenStore
from rollout_tasks.http_services.tokens import ServiceTokens
from rollout_tasks.service.lending.application import served

holders = TokenHolders(ServiceTokens("boss:operator-0123456789abcdef"), TokenStore(redis.Redis()))
application = served(None, holders, None)

async def answered(token):
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(application), headers=headers) as client:
        reply = await client.post("http://here/mcp", content=b"{")
    return [reply.status_code, reply.json()["error"]["message"]]

print(json.dumps([asyncio.run(answered(token)) for token in ("operator-0123456789abcdef", "wrong")]))
"""
IMPORTS = """
import sys
import rollout_tasks.cli.desktops, rollout_tasks.cli.main, rollout_tasks.service.lending.application, rollout_tasks.tasks
print([name for name in sys.modules if name.partition(".")[0] in {"mcp", "mcp_types"}])
"""


def printed(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def test_without_the_package_a_client_is_told_so() -> None:
    assert json.loads(printed(WITHOUT_PACKAGE)) == [
        [501, "this address is for MCP clients; the service needs the package mcp, 2.3 or newer, for it"],
        [403, "the token is not known here, or was revoked"],
    ]


def test_only_a_service_that_runs_imports_the_package() -> None:
    assert printed(IMPORTS) == "[]"
