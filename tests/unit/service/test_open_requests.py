"""A holder's requests that wait have a most, which grows with the quota."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from rollout_tasks.http_services.token_holders import TokenHolder
from rollout_tasks.service.lending.open_requests import OpenRequests
from rollout_tasks.service.lending.refusal import Refusal


def test_one_holder_takes_up_no_more_than_a_part() -> None:
    requests = OpenRequests(lambda holder: 5 if holder.quota is None else holder.quota)
    alice, bob, boss = TokenHolder("alice", 2), TokenHolder("bob", 0), TokenHolder("boss", None, operator=True)
    with ExitStack() as opened:
        for holder, most in ((alice, 64 + 2 * 8), (bob, 64), (boss, 64 + 5 * 8)):
            for _ in range(most):
                opened.enter_context(requests.counted(holder))
            with pytest.raises(Refusal, match=f"{most} of your requests are being answered") as refusal:
                opened.enter_context(requests.counted(holder))
            assert refusal.value.status == 429
    with requests.counted(alice):
        pass
