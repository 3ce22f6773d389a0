"""`rollouts desktops token`: tokens are shown once, stored as digests, and worthless once revoked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from rollout_tasks.cli.desktops import application
from rollout_tasks.errors import UserError
from rollout_tasks.http_services.token_holders import TokenHolder, TokenHolders
from rollout_tasks.http_services.token_store import KEY, TokenStore, digest_of
from rollout_tasks.http_services.tokens import ServiceTokens
from rollout_tasks.redis_client import connect


def said(url: str, *arguments: str) -> str:
    done = CliRunner().invoke(
        application, ["token", arguments[0], "--redis-url", url, *arguments[1:]], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_token_is_shown_once_and_stored_as_a_digest(redis_url: str) -> None:
    token = said(redis_url, "make", "carol", "--quota", "3").strip()
    assert token.startswith("rt-")
    assert len(token) == 51
    listed = said(redis_url, "list", "--json")
    assert [(one["name"], one["quota"]) for one in json.loads(listed)] == [("carol", 3)]
    assert "carol" in said(redis_url, "list")
    with connect(tries=1, url=redis_url) as client:
        stored: Any = client.hgetall(KEY)
    assert token not in json.dumps([stored, listed])
    with pytest.raises(UserError, match="'carol' has a token already: revoke it first"):
        said(redis_url, "make", "carol")
    assert said(redis_url, "revoke", "carol") == "the token of carol is revoked\n"
    with pytest.raises(UserError, match="there is no token of 'carol'"):
        said(redis_url, "revoke", "carol")


@pytest.mark.parametrize("name", ["", "a b", "../up", "x" * 65, "ä"])
def test_names_are_plain(redis_url: str, name: str) -> None:
    with pytest.raises(UserError, match="NAME: may have letters"):
        said(redis_url, "make", "--", name)


def test_holders_are_operators_and_users(redis_url: str) -> None:
    with connect(tries=1, url=redis_url) as client:
        store = TokenStore(client)
        holders = TokenHolders(ServiceTokens("carol:0123456789abcdef"), store)
        token = store.make("carol", 3).encode()
        assert holders.holder(token) is None
        holders.read()
        assert holders.holder(token) == TokenHolder("carol", 3, digest=digest_of(token))
        assert holders.holder(b"0123456789abcdef") == TokenHolder("carol", None, operator=True)
        assert holders.holder(token).owner != holders.holder(b"0123456789abcdef").owner  # type: ignore[union-attr]
        holders.set_quota("carol", 1)
        assert holders.users() == [TokenHolder("carol", 1, digest=digest_of(token))]
        client.hset(KEY, "broken", "{")
        store.revoke("carol")
        holders.read()
        assert (holders.users(), holders.holder(token)) == ([], None)
        with pytest.raises(UserError, match="there is no token of 'carol'"):
            holders.set_quota("carol", 1)
        with pytest.raises(UserError, match="a quota is a whole number from 0 to 100,000, got -1"):
            store.make("dave", -1)
