"""Every script of the pool, on a real Valkey: what it answers and exactly what it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from tests.unit.vm_pool.script_changes import SECOND, Recorder
from vm_pool.pool import VMPool

HERE = '{"address": "a"}'
TTL, AGE, ALIVE, HEAD_START = 20 * SECOND, 300 * SECOND, 7 * SECOND, 0
SILENT = 40 * SECOND


@pytest.fixture
def recorder(redis_url: str) -> Iterator[Recorder]:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    pool = VMPool(client, "p")
    yield Recorder(client, pool)
    pool.close()
    client.close()


def ask(
    recorder: Recorder, token: str, *, again: bool = False, ticket: int | str = 0, holder: str = "me"
) -> dict[str, str]:
    words = (token, TTL, AGE, HEAD_START, ALIVE, ticket, 0, holder, int(again), "here:1:2")
    return recorder.run("acquire", *words)


def beat(
    recorder: Recorder, host: str = "h", *, take_over: str = "0", instance: str = "i1", trusts: str = ""
) -> dict[str, str]:
    return recorder.run("beat", host, instance, SILENT, take_over, trusts or server(recorder))


def server(recorder: Recorder) -> str:
    return str(recorder.client.info("server")["run_id"])


def register(
    recorder: Recorder, vm: str = "v", host: str = "h", state: str = "resetting", known: int = 0
) -> dict[str, str]:
    return recorder.run("register", vm, host, HERE, "1" if host else "0", state, known)


def make_ready(recorder: Recorder, vm: str = "v") -> dict[str, str]:
    return recorder.run("ready", vm, recorder.fence(vm), HERE)


@pytest.fixture
def free(recorder: Recorder) -> Recorder:
    """A host `h` with one VM `v`, free and clean."""
    beat(recorder, take_over="1")
    register(recorder)
    make_ready(recorder)
    recorder.client.delete("{pool:p}:work:h")
    return recorder


@pytest.fixture
def leased(free: Recorder) -> Recorder:
    """The same VM, leased to `me` under the token `t`."""
    ask(free, "t")
    return free


# -- hosts


def test_a_host_that_begins_is_known_until_it_is_silent(recorder: Recorder) -> None:
    changed = beat(recorder, take_over="1")

    assert changed == {"hosts.h": "i1", "servers.h": server(recorder), "timers.host:h": "now+40"}
    assert recorder.reply == [1, "now", "now+40", server(recorder)]


def test_a_beat_says_what_the_hosts_vms_are_in(free: Recorder) -> None:
    changed = beat(free)

    assert changed == {"timers.host:h": "now+40"}
    assert free.reply == [1, "now", "now+40", server(free), ["v", "free", "fence", "0", 0]]


def test_another_instance_speaks_for_a_host_only_when_the_first_is_silent_or_known_to_be_gone(free: Recorder) -> None:
    assert beat(free, instance="i2", take_over="1") == {}
    assert free.reply[:2] == [0, "i1"]
    assert beat(free, instance="i2") == {}
    assert free.reply[:2] == [0, "i1"]

    free.client.rpush("{pool:p}:work:h", "v")
    changed = beat(free, instance="i2", take_over="i1")

    assert changed == {"hosts.h": "i2", "timers.host:h": "now+40", "free.v": "-", "work:h": "-"}
    assert free.reply[0] == 1


def test_a_silent_host_is_taken_over_by_who_says_so_and_not_by_a_mere_sign_of_life(free: Recorder) -> None:
    free.client.zadd("{pool:p}:timers", {"host:h": 1})

    assert beat(free, instance="i2") == {}
    assert free.reply[:2] == [0, "i1"]
    assert beat(free, instance="i2", take_over="1")["hosts.h"] == "i2"
    assert free.reply[0] == 1


def test_a_silent_hosts_free_vms_are_not_granted_and_come_back_with_it(free: Recorder) -> None:
    free.client.zadd("{pool:p}:timers", {"host:h": 1})

    changed = ask(free, "t")

    assert changed == {
        "free.v": "-",
        "timers.host:h": "-",
        "counters.host_silent": "1",
        "event 2": "host_silent - 0 h",
        "counters.last_ticket": "now",
        "queue.t": "now",
        "waiters.t": f"{TTL} {AGE} 0 now me\nhere:1:2",
        "timers.waiter:t": "now+7",
    }
    assert free.reply == [0, "now", "now", 1]
    free.run("leave", "t", "1")

    assert beat(free) == {"timers.host:h": "now+40", "free.v": "now"}
    assert free.reply[4] == ["v", "free", "fence", "0", 0]


def test_a_host_that_falls_silent_has_no_free_vms(free: Recorder) -> None:
    free.client.zadd("{pool:p}:timers", {"host:h": 1})

    assert free.run("reap") == {
        "free.v": "-",
        "timers.host:h": "-",
        "counters.host_silent": "1",
        "event 2": "host_silent - 0 h",
    }


def test_a_host_heard_again_hands_its_vm_to_who_waits(free: Recorder) -> None:
    free.client.zadd("{pool:p}:timers", {"host:h": 1})
    ask(free, "t")

    changed = beat(free)

    assert changed["vm:v.state"] == "leased"
    assert changed["inbox:t"] == f"now now+20 v {HERE}"
    assert free.reply[4] == ["v", "leased", "now", "0", 0]


def test_a_server_that_the_host_does_not_trust_grants_nothing(free: Recorder) -> None:
    free.client.hset("{pool:p}:servers", "h", "0" * 40)

    assert "vm:v.state" not in ask(free, "t")
    assert free.reply[0] == 0
    assert beat(free, trusts="another") == {"timers.host:h": "now+40"}
    changed = beat(free)

    assert (changed["servers.h"], changed["vm:v.state"]) == (server(free), "leased")


@pytest.fixture
def doubted(free: Recorder) -> Recorder:
    """Two free VMs of `h`, which does not trust this server now, before one of another host, which does."""
    register(free, "v2")
    make_ready(free, "v2")
    beat(free, "h2", instance="i2", take_over="1")
    beat(free, "h2", instance="i2")
    register(free, "w", "h2")
    make_ready(free, "w")
    free.client.hset("{pool:p}:servers", "h", "0" * 40)
    free.client.zadd("{pool:p}:free", {"v": 1, "v2": 2, "w": 3})
    return free


def test_a_free_vm_is_granted_however_many_are_before_it_that_are_not_lent(doubted: Recorder) -> None:
    assert ask(doubted, "t")["vm:w.state"] == "leased"
    assert doubted.reply[1] == "w"


def test_who_waits_and_is_granted_a_vm_when_it_asks_again_waits_no_more(doubted: Recorder) -> None:
    """Otherwise the next VM would go to it, too."""
    doubted.client.zrem("{pool:p}:free", "w")
    ask(doubted, "t")
    doubted.client.zadd("{pool:p}:free", {"w": 3})

    assert ask(doubted, "t", again=True)["vm:w.state"] == "leased"

    assert doubted.client.zcard("{pool:p}:queue") == 0
    assert doubted.client.hlen("{pool:p}:waiters") == 0
    assert doubted.client.zscore("{pool:p}:timers", "waiter:t") is None


def test_an_instance_that_retires_leaves_no_trace(free: Recorder) -> None:
    assert free.run("retire", "h", "i2") == {}
    assert free.reply == 0
    free.client.rpush("{pool:p}:work:h", "v")

    assert free.run("retire", "h", "i1") == {"hosts.h": "-", "servers.h": "-", "timers.host:h": "-", "work:h": "-"}
    assert free.reply == 1


# -- a VM's way through its states


def test_a_registered_vm_is_the_hosts_to_reset(recorder: Recorder) -> None:
    beat(recorder, take_over="1")

    changed = register(recorder)

    assert changed == {
        "vms": "v",
        "host:h": "v",
        "work:h": "v",
        "event 0": "registered v now h",
        "vm:v.state": "resetting",
        "vm:v.host": "h",
        "vm:v.endpoint": HERE,
        "vm:v.needs_reset": "1",
        "vm:v.fence": "now",
        "vm:v.since": "now",
        "vm:v.holder": "",
        "vm:v.token": "",
    }
    assert recorder.reply == "now"


def test_a_vm_that_nobody_looks_after_is_free_at_once(recorder: Recorder) -> None:
    changed = register(recorder, host="", state="free")

    assert (changed["vm:v.state"], changed["free.v"], changed["event 0"]) == ("free", "now", "registered v now ")
    assert not any(name.startswith(("host:", "work:")) for name in changed)


def test_fences_exceed_all_that_was_known(leased: Recorder) -> None:
    ahead = int(leased.fence("v")) + 10**15
    leased.client.hset("{pool:p}:vm:v", "fence", ahead)

    register(leased)
    assert int(leased.fence("v")) == ahead + 2
    register(leased, known=ahead + 100)
    assert int(leased.fence("v")) == ahead + 101


def test_a_vm_registered_anew_takes_its_lease_back(leased: Recorder) -> None:
    changed = register(leased)

    assert changed == {
        "vm:v.state": "resetting",
        "vm:v.fence": "now",
        "vm:v.since": "now",
        "vm:v.holder": "",
        "vm:v.token": "",
        "counters.revoked": "1",
        "event 3": "revoked v fence me",
        "event 4": "registered v now h",
        "work:h": "v | v",
    }


def test_a_vm_of_a_living_host_is_not_taken_over_and_that_of_a_silent_one_is(free: Recorder) -> None:
    assert register(free, host="h2") == {}
    assert free.reply == "h"
    free.client.zadd("{pool:p}:timers", {"host:h": 1})

    changed = register(free, host="h2")

    assert (changed["vm:v.host"], changed["host:h"], changed["host:h2"], changed["free.v"]) == ("h2", "-", "v", "-")


def test_a_booted_vm_is_free(recorder: Recorder) -> None:
    beat(recorder, take_over="1")
    register(recorder, state="initializing")

    changed = make_ready(recorder)

    assert changed == {"vm:v.state": "free", "vm:v.since": "now", "free.v": "now", "event 1": "booted v fence h"}
    assert recorder.reply == "free"


def test_a_reset_vm_is_free_and_its_failures_are_forgotten(recorder: Recorder) -> None:
    beat(recorder, take_over="1")
    register(recorder)
    recorder.client.hset("{pool:p}:vm:v", mapping={"failures": 2, "error": "x", "retry_at": 5})

    changed = recorder.run("ready", "v", recorder.fence("v"), '{"address": "b"}')

    assert changed == {
        "vm:v.state": "free",
        "vm:v.since": "now",
        "vm:v.endpoint": '{"address": "b"}',
        "vm:v.resets": "1",
        "vm:v.failures": "-",
        "vm:v.error": "-",
        "vm:v.retry_at": "-",
        "free.v": "now",
        "counters.reset_done": "1",
        "event 1": "reset_done v fence h",
    }


@pytest.mark.parametrize("script", ["ready", "failed"])
def test_a_report_about_another_state_changes_nothing(free: Recorder, script: str) -> None:
    more = (HERE,) if script == "ready" else ("why", SECOND, SECOND)

    assert free.run(script, "v", free.fence("v"), *more) == {}
    assert free.reply == ("" if script == "ready" else 0)
    register(free)
    assert free.run(script, "v", int(free.fence("v")) - 1, *more) == {}


def test_a_reset_drained_vm_stops(recorder: Recorder) -> None:
    beat(recorder, take_over="1")
    register(recorder)
    assert recorder.run("drain", "v", "1") == {"vm:v.drained": "1"}
    assert recorder.reply == "resetting"

    changed = make_ready(recorder)

    assert (changed["vm:v.state"], changed["work:h"]) == ("stopped", "v | v")
    assert [changed["event 1"], changed["event 2"]] == ["reset_done v fence h", "stopped v fence h"]
    assert recorder.reply == "stopped"
    assert "free.v" not in changed


def test_failures_are_counted_and_wait_ever_longer(recorder: Recorder) -> None:
    beat(recorder, take_over="1")
    register(recorder, state="initializing")

    changed = recorder.run("failed", "v", recorder.fence("v"), "no luck", 5 * SECOND, 7 * SECOND)

    assert changed == {
        "vm:v.state": "error",
        "vm:v.error": "no luck",
        "vm:v.since": "now",
        "vm:v.failures": "1",
        "vm:v.retry_at": "now+5",
        "counters.quarantined": "1",
        "event 1": "quarantined v fence h",
        "work:h": "v | v",
    }
    assert recorder.reply == 1
    recorder.run("move", "v", " error ", "initializing", "", "")
    again = recorder.run("failed", "v", recorder.fence("v"), "no luck", 5 * SECOND, 7 * SECOND)
    assert (again["vm:v.retry_at"], recorder.reply) == ("now+7", 2)
    recorder.run("move", "v", " error ", "resetting", "", "")
    third = recorder.run("failed", "v", recorder.fence("v"), "no luck", 5 * SECOND, 900 * SECOND)
    assert (third["vm:v.retry_at"], recorder.reply) == ("now+20", 3)


@pytest.mark.parametrize(
    ("to", "event"),
    [("initializing", "boot_begun"), ("resetting", "reset_begun"), ("error", "quarantined"), ("stopped", "stopped")],
)
def test_a_moved_vm_is_its_hosts_to_look_at(free: Recorder, to: str, event: str) -> None:
    free.client.hset("{pool:p}:vm:v", "retry_at", 5)

    changed = free.run("move", "v", " free error ", to, free.fence("v"), "why" if to == "error" else "")

    assert changed == {
        "vm:v.state": to,
        "vm:v.fence": "fence+2",
        "vm:v.since": "now",
        "vm:v.retry_at": "-",
        "free.v": "-",
        "event 2": f"{event} v fence+2 h",
        "work:h": "v",
        **({"vm:v.error": "why"} if to == "error" else {}),
    }
    assert free.reply == [1, "fence+2"]


def test_a_vm_is_moved_only_from_the_states_and_fences_that_are_said(leased: Recorder) -> None:
    assert leased.run("move", "v", " free error ", "resetting", "", "") == {}
    assert leased.reply == [0, "leased"]
    assert leased.run("move", "v", " leased ", "resetting", int(leased.fence("v")) + 1, "") == {}
    assert leased.reply == [0, "leased"]
    assert leased.run("move", "w", " leased ", "resetting", "", "") == {}
    assert leased.reply == [0, ""]

    changed = leased.run("move", "v", " leased ", "error", "", "why")

    assert (changed["event 3"], changed["event 4"]) == ("revoked v fence me", "quarantined v fence+2 h")
    assert changed["counters.revoked"] == "1"


def test_draining_a_free_vm_stops_it_and_undoing_boots_it(free: Recorder) -> None:
    free.client.hset("{pool:p}:vm:v", mapping={"failures": 2, "error": "x", "retry_at": 5})

    assert free.run("drain", "v", "1") == {
        "vm:v.drained": "1",
        "vm:v.state": "stopped",
        "vm:v.fence": "fence+1",
        "vm:v.since": "now",
        "vm:v.failures": "-",
        "vm:v.error": "-",
        "vm:v.retry_at": "-",
        "free.v": "-",
        "event 2": "stopped v fence+1 h",
        "work:h": "v",
    }
    assert free.reply == "stopped"
    assert free.run("drain", "v", "0") == {
        "vm:v.drained": "-",
        "vm:v.state": "initializing",
        "vm:v.fence": "fence+1",
        "vm:v.since": "now",
        "event 3": "boot_begun v fence+1 h",
        "work:h": "v | v",
    }
    assert free.run("drain", "v", "0") == {}
    assert free.reply == "initializing"
    assert free.run("drain", "w", "1") == {}
    assert free.reply == ""


def test_what_was_stopped_without_draining_is_not_booted_by_undoing_it(free: Recorder) -> None:
    free.run("move", "v", " free ", "stopped", "", "")

    assert free.run("drain", "v", "0") == {}
    assert free.reply == "stopped"


def test_a_vm_whose_boot_failed_is_stopped_by_draining_it(recorder: Recorder) -> None:
    register(recorder)
    recorder.run("failed", "v", recorder.fence("v"), "no disk", 1_000_000, 9_000_000)

    changed = recorder.run("drain", "v", "1")

    assert (changed["vm:v.state"], changed["vm:v.error"], changed["vm:v.retry_at"]) == ("stopped", "-", "-")


def test_a_quarantine_by_an_operator_outlasts_a_drain(free: Recorder) -> None:
    free.run("move", "v", " free ", "error", "", "why")

    assert free.run("drain", "v", "1") == {"vm:v.drained": "1"}
    assert free.reply == "error"
    assert free.run("drain", "v", "0") == {"vm:v.drained": "-"}
    assert free.reply == "error"
    assert free.run("move", "v", " error ", "initializing", "", "")["vm:v.state"] == "initializing"


def test_a_vm_without_a_host_is_free_again_when_draining_is_undone(recorder: Recorder) -> None:
    register(recorder, host="", state="free")
    recorder.run("drain", "v", "1")

    changed = recorder.run("drain", "v", "0")

    assert changed == {"vm:v.drained": "-", "vm:v.state": "free", "vm:v.since": "now", "free.v": "now"}
    recorder.run("drain", "v", "1")
    assert register(recorder, host="", state="free").get("free.v") is None
    assert recorder.client.hget("{pool:p}:vm:v", "state") == "stopped"


def test_a_drained_lease_is_held_to_its_end(leased: Recorder) -> None:
    assert leased.run("drain", "v", "1") == {"vm:v.drained": "1"}
    assert leased.reply == "leased"
    assert leased.run("drain", "v", "0") == {"vm:v.drained": "-"}


# -- leases


def test_a_grant_is_written_down_with_all_its_terms(free: Recorder) -> None:
    changed = ask(free, "t")

    assert changed == {
        "free.v": "-",
        "vm:v.state": "leased",
        "vm:v.fence": "now",
        "vm:v.since": "now",
        "vm:v.holder": "me",
        "vm:v.token": "t",
        "vm:v.process": "here:1:2",
        "vm:v.ttl": str(TTL),
        "vm:v.deadline": "now+20",
        "vm:v.ends": "now+300",
        "vm:v.grants": "1",
        "vm:v.timer": "now+20",
        "timers.lease:v": "now+20",
        "event 2": "granted v now me",
    }
    assert free.reply == [1, "v", "now", "now+20", "now", HERE]


def test_a_lease_never_outlives_its_greatest_age(free: Recorder) -> None:
    free.run("acquire", "t", 100 * SECOND, 20 * SECOND, 0, ALIVE, 0, 0, "me", 0, "")

    assert free.reply[3] == "now+20"
    assert free.client.hget("{pool:p}:vm:v", "ends") == free.client.hget("{pool:p}:vm:v", "deadline")
    free.run("renew", "v", free.fence("v"))
    assert free.client.hget("{pool:p}:vm:v", "ends") == free.client.hget("{pool:p}:vm:v", "deadline")


def test_the_same_token_finds_its_grant_again(leased: Recorder) -> None:
    changed = ask(leased, "t", again=True)

    assert changed == {"vm:v.deadline": "now+20"}
    assert leased.reply == [1, "v", "fence", "now+20", "now", HERE]


def test_a_renewal_moves_the_deadline_and_nothing_else(leased: Recorder) -> None:
    fence = leased.fence("v")

    assert leased.run("renew", "v", fence, "v", int(fence) + 1, "w", fence) == {"vm:v.deadline": "now+20"}
    assert leased.reply == ["now", "now+20", 0, 0]


def test_a_lease_past_its_deadline_is_not_renewed(leased: Recorder) -> None:
    leased.client.hset("{pool:p}:vm:v", "deadline", leased.client.hget("{pool:p}:vm:v", "since"))

    assert leased.run("renew", "v", leased.fence("v")) == {}
    assert leased.reply[1] == 0


def test_a_released_vm_is_its_hosts_to_reset(leased: Recorder) -> None:
    fence = leased.fence("v")

    assert leased.run("release", "v", int(fence) + 1) == {}
    assert leased.reply == 0
    assert leased.run("release", "v", fence) == {
        "vm:v.state": "resetting",
        "vm:v.fence": "fence+1",
        "vm:v.since": "now",
        "event 3": "released v fence me",
        "work:h": "v",
    }
    assert leased.reply == 1
    assert leased.run("release", "v", fence) == {}
    assert leased.reply == 0


def test_an_operator_takes_a_lease_back_and_it_is_counted(leased: Recorder) -> None:
    changed = leased.run("release", "v", "")

    assert (changed["event 3"], changed["counters.revoked"], leased.reply) == ("revoked v fence me", "1", 1)
    assert leased.run("release", "v", "") == {}


@pytest.mark.parametrize(("drained", "after"), [(False, "free"), (True, "stopped")])
def test_a_vm_that_needs_no_reset_goes_on_at_once(recorder: Recorder, drained: bool, after: str) -> None:
    register(recorder, host="", state="free")
    ask(recorder, "t")
    if drained:
        recorder.run("drain", "v", "1")

    changed = recorder.run("release", "v", recorder.fence("v"))

    assert changed["vm:v.state"] == after
    assert changed.get("free.v") == (None if drained else "now")
    assert not any(name.startswith("work:") for name in changed)


def test_an_expired_lease_is_taken_back_by_whoever_comes_next(leased: Recorder) -> None:
    leased.client.hset("{pool:p}:vm:v", "deadline", 1)
    leased.client.zadd("{pool:p}:timers", {"lease:v": 1})

    assert leased.run("reap") == {
        "vm:v.state": "resetting",
        "vm:v.fence": "fence+1",
        "vm:v.since": "now",
        "vm:v.timer": "-",
        "timers.lease:v": "-",
        "counters.expired": "1",
        "event 3": "expired v fence me",
        "work:h": "v",
    }
    assert leased.reply == 1
    assert leased.run("reap") == {}
    assert leased.reply == 0


@pytest.mark.parametrize("comes", [beat, lambda pool: ask(pool, "another")])
def test_a_lease_past_its_deadline_ends_on_the_way_of_other_scripts(
    leased: Recorder, comes: Callable[[Recorder], object]
) -> None:
    leased.client.hset("{pool:p}:vm:v", "deadline", 1)
    leased.client.zadd("{pool:p}:timers", {"lease:v": 1})

    comes(leased)

    assert leased.client.hget("{pool:p}:vm:v", "state") == "resetting"
    assert leased.client.hget("{pool:p}:counters", "expired") == "1"


def test_a_renewed_lease_is_looked_at_again_at_its_new_deadline(leased: Recorder) -> None:
    leased.client.zadd("{pool:p}:timers", {"lease:v": 1})
    deadline = leased.client.hget("{pool:p}:vm:v", "deadline")

    leased.run("reap")

    assert leased.reply == 0
    assert leased.client.hget("{pool:p}:vm:v", "timer") == deadline
    assert leased.client.zscore("{pool:p}:timers", "lease:v") == float(deadline)


def test_a_timer_of_a_vm_that_is_not_leased_is_dropped(free: Recorder) -> None:
    free.client.zadd("{pool:p}:timers", {"lease:v": 1})
    free.client.hset("{pool:p}:vm:v", "timer", 1)

    assert free.run("reap") == {"timers.lease:v": "-", "vm:v.timer": "-"}
    assert free.reply == 0


def test_short_leases_share_a_timer(leased: Recorder) -> None:
    timer = leased.client.zscore("{pool:p}:timers", "lease:v")
    leased.run("release", "v", leased.fence("v"))
    make_ready(leased)

    changed = ask(leased, "t2")

    assert "timers.lease:v" not in changed
    assert leased.client.zscore("{pool:p}:timers", "lease:v") == timer
    leased.run("release", "v", leased.fence("v"))
    make_ready(leased)
    assert leased.run("acquire", "t3", 5 * SECOND, AGE, 0, ALIVE, 0, 0, "me", 0, "")["timers.lease:v"] == "now+5"


# -- waiting


def test_who_finds_no_vm_waits_in_line(leased: Recorder) -> None:
    changed = leased.run("acquire", "w", TTL, AGE, 5 * SECOND, ALIVE, 0, 3, "two words", 0, "here:3:4")

    assert changed["waiters.w"] == f"{TTL} {AGE} 3 now two words\nhere:3:4"
    assert changed["timers.waiter:w"] == "now+7"
    assert changed["counters.last_ticket"] == "now"
    assert int(leased.client.zscore("{pool:p}:queue", "w")) == leased.now - 5 * SECOND
    assert leased.reply == [0, "now", "now", 1]


def test_tickets_are_given_in_order_even_within_one_moment(leased: Recorder) -> None:
    ahead = int(leased.fence("v")) + 10**12
    leased.client.hset("{pool:p}:counters", "last_ticket", ahead)

    ask(leased, "w")

    assert leased.client.zscore("{pool:p}:queue", "w") == ahead + 1
    assert leased.client.hget("{pool:p}:counters", "last_ticket") == str(ahead + 1)


def test_asking_again_keeps_the_place_and_the_life(leased: Recorder) -> None:
    ask(leased, "w")
    ticket = int(leased.client.zscore("{pool:p}:queue", "w"))

    assert ask(leased, "w", again=True, ticket=ticket) == {"timers.waiter:w": "now+7"}
    changed = ask(leased, "w", again=True)  # as after a lost first reply: the place stays all the same
    assert set(changed) == {"timers.waiter:w", "counters.last_ticket"}
    leased.client.delete("{pool:p}:queue", "{pool:p}:waiters", "{pool:p}:timers")
    changed = ask(leased, "w", again=True, ticket=ticket)
    assert leased.client.zscore("{pool:p}:queue", "w") == ticket
    assert "counters.last_ticket" not in changed


def test_who_asks_again_after_its_lease_has_expired_waits_anew(leased: Recorder) -> None:
    leased.client.hset("{pool:p}:vm:v", "deadline", 1)
    leased.client.zadd("{pool:p}:timers", {"lease:v": 1})

    changed = ask(leased, "t", again=True)

    assert (changed["vm:v.state"], changed["event 3"]) == ("resetting", "expired v fence me")
    assert changed["queue.t"] == "now"
    assert leased.reply[0] == 0


def test_a_grant_replaces_what_an_inbox_still_holds(leased: Recorder) -> None:
    ask(leased, "w")
    leased.client.rpush("{pool:p}:inbox:w", "from before a restart")
    leased.run("release", "v", leased.fence("v"))

    assert make_ready(leased)["inbox:w"] == f"now now+20 v {HERE}"


def test_a_free_vm_goes_to_the_first_waiter_that_lives(leased: Recorder) -> None:
    for token in ("dead", "w", "later"):
        ask(leased, token)
    leased.client.zadd("{pool:p}:timers", {"waiter:dead": 1})
    leased.run("release", "v", leased.fence("v"))

    changed = make_ready(leased)

    assert changed == {
        "vm:v.state": "leased",
        "vm:v.fence": "now",
        "vm:v.since": "now",
        "vm:v.token": "w",
        "vm:v.deadline": "now+20",
        "vm:v.ends": "now+300",
        "vm:v.grants": "2",
        "vm:v.resets": "2",
        "vm:v.timer": "now+3",
        "timers.lease:v": "now+3",
        "timers.waiter:dead": "-",
        "timers.waiter:w": "-",
        "queue.dead": "-",
        "queue.w": "-",
        "waiters.dead": "-",
        "waiters.w": "-",
        "inbox:w": f"now now+20 v {HERE}",
        "counters.reset_done": "2",
        "counters.waiters_lost": "1",
        "event 4": "reset_done v fence h",
        "event 5": "granted v now me",
    }
    assert leased.reply == "leased"
    assert 0 < leased.client.pttl("{pool:p}:inbox:w") <= 20_000


def test_a_grant_that_nobody_takes_goes_to_the_next_soon(leased: Recorder) -> None:
    ask(leased, "w")
    leased.run("release", "v", leased.fence("v"))
    make_ready(leased)
    since = int(leased.client.hget("{pool:p}:vm:v", "since"))
    leased.client.hset("{pool:p}:vm:v", mapping={"since": since - 4 * SECOND, "deadline": since + 16 * SECOND})
    leased.client.hset("{pool:p}:vm:v", "ends", since + 296 * SECOND)
    leased.client.zadd("{pool:p}:timers", {"lease:v": 1})

    changed = leased.run("reap")

    assert (changed["vm:v.state"], changed["inbox:w"], changed["counters.expired"]) == ("resetting", "-", "1")


def test_a_grant_that_was_just_handed_over_may_still_be_taken(leased: Recorder) -> None:
    ask(leased, "w")
    leased.run("release", "v", leased.fence("v"))
    make_ready(leased)
    granted = int(leased.client.hget("{pool:p}:vm:v", "since"))
    leased.client.zadd("{pool:p}:timers", {"lease:v": 1})

    leased.run("reap")

    assert leased.reply == 0
    assert leased.client.hget("{pool:p}:vm:v", "state") == "leased"
    assert leased.client.zscore("{pool:p}:timers", "lease:v") == granted + 3 * SECOND


@pytest.mark.parametrize("how", ["taken", "renewed"])
def test_a_grant_that_was_taken_or_renewed_keeps_its_time(leased: Recorder, how: str) -> None:
    ask(leased, "w")
    leased.run("release", "v", leased.fence("v"))
    make_ready(leased)
    since = int(leased.client.hget("{pool:p}:vm:v", "since")) - 4 * SECOND
    terms = {"since": since, "deadline": since + 20 * SECOND, "ends": since + 300 * SECOND}
    leased.client.hset("{pool:p}:vm:v", mapping=terms)
    if how == "taken":
        leased.client.delete("{pool:p}:inbox:w")
    else:
        leased.run("renew", "v", leased.fence("v"))
    leased.client.zadd("{pool:p}:timers", {"lease:v": 1})

    leased.run("reap")

    assert leased.reply == 0
    assert leased.client.hget("{pool:p}:vm:v", "state") == "leased"


def test_who_leaves_the_line_says_where_it_stood(leased: Recorder) -> None:
    ask(leased, "w")
    ask(leased, "x")

    assert leased.run("leave", "x", "0") == {
        "queue.x": "-",
        "waiters.x": "-",
        "timers.waiter:x": "-",
        "counters.gave_up": "1",
    }
    assert leased.reply == [0, 2, leased.reply[2]]
    assert leased.run("leave", "x", "0") == {}
    assert leased.reply[:2] == [0, 0]


def test_a_grant_that_met_the_leaving_is_taken_or_given_back(leased: Recorder) -> None:
    leased.client.rpush("{pool:p}:inbox:t", "grant")

    assert leased.run("leave", "t", "0") == {"vm:v.deadline": "now+20", "inbox:t": "-"}
    assert leased.reply == [1, "v", "fence", "now+20", "now", HERE]
    leased.client.rpush("{pool:p}:inbox:t", "grant")
    changed = leased.run("leave", "t", "1")
    assert (changed["event 3"], changed["counters.returned"], changed["inbox:t"]) == ("returned v fence me", "1", "-")
    assert changed["vm:v.state"] == "resetting"


def test_a_waiter_that_stopped_asking_is_forgotten(leased: Recorder) -> None:
    ask(leased, "w")
    leased.client.zadd("{pool:p}:timers", {"waiter:w": 1})

    assert leased.run("reap") == {
        "queue.w": "-",
        "waiters.w": "-",
        "timers.waiter:w": "-",
        "counters.waiters_lost": "1",
    }
    assert leased.reply == 1


# -- the dead of a machine


def test_who_is_of_a_machine_is_told(leased: Recorder) -> None:
    ask(leased, "w")
    leased.run("acquire", "elsewhere", TTL, AGE, 0, ALIVE, 0, 0, "me", 0, "there:5:6")
    leased.run("acquire", "nowhere", TTL, AGE, 0, ALIVE, 0, 0, "me", 0, "")

    assert leased.run("processes", "here", 10) == {}
    assert leased.reply == [["v", "fence", "here:1:2"], ["w", "here:1:2"]]
    leased.run("processes", "there", 2)
    assert leased.reply == [[], ["elsewhere", "there:5:6"]]
    leased.run("processes", "there", 1)
    assert leased.reply == [[], []]
    leased.run("processes", "her", 10)
    assert leased.reply == [[], []]


def test_the_dead_lose_what_they_held_and_waited_for(leased: Recorder) -> None:
    ask(leased, "w")
    fence = leased.fence("v")

    assert leased.run("ended", "v", int(fence) + 1, "nobody", "") == {}
    assert leased.reply == 0
    assert leased.run("ended", "v", fence, "w", "") == {
        "vm:v.state": "resetting",
        "vm:v.fence": "fence+1",
        "vm:v.since": "now",
        "counters.holders_lost": "1",
        "counters.expired": "1",
        "counters.waiters_lost": "1",
        "event 3": "expired v fence me",
        "queue.w": "-",
        "waiters.w": "-",
        "timers.waiter:w": "-",
        "work:h": "v",
    }
    assert leased.reply == 2


# -- looking and removing


def test_the_status_tells_everything(leased: Recorder) -> None:
    ask(leased, "w", holder="you")

    assert leased.run("status") == {}

    _now, ((vm, heard, *fields),), (token, request), counters, hosts = leased.reply
    assert (vm, heard, token, hosts) == ("v", "1", "w", ["h", "i1"])
    assert request.startswith(f"{TTL} {AGE} 0 ")
    assert dict(zip(fields[::2], fields[1::2], strict=True))["holder"] == "me"
    assert dict(zip(counters[::2], counters[1::2], strict=True))["reset_done"] == "1"
    leased.client.zadd("{pool:p}:timers", {"host:h": 1})
    leased.run("status")
    assert leased.reply[1][0][1] == "0"


def test_a_removed_vm_leaves_its_counts(leased: Recorder) -> None:
    changed = leased.run("remove", "v", "no-such")

    gone = {name: value for name, value in changed.items() if value == "-"}
    assert set(gone) >= {"vms", "host:h", "timers.lease:v", "vm:v.state", "vm:v.fence", "vm:v.host"}
    assert (changed["counters.granted"], changed["counters.revoked"]) == ("1", "1")
    assert (changed["event 3"], changed["event 4"]) == ("revoked v fence me", "removed v fence h")
    assert leased.reply == 1
    assert not any(name.startswith(("vm:v", "free.")) for name in leased.state())
    assert leased.state()["hosts.h"] == "i1"


def test_the_last_vm_of_a_silent_host_takes_the_host_along(free: Recorder) -> None:
    free.client.zadd("{pool:p}:timers", {"host:h": 1})

    changed = free.run("remove", "v")

    assert [changed[name] for name in ("hosts.h", "servers.h", "free.v", "vms")] == ["-"] * 4
    assert not any(name.startswith("work:") for name in free.state())


@pytest.mark.parametrize("forgotten", ["nothing", "hosts", "servers"])
def test_a_deleted_pool_leaves_nothing(leased: Recorder, forgotten: str) -> None:
    """Also of a host that Redis has forgotten, or of one of a version that names no server."""
    ask(leased, "w")
    register(leased, vm="x", host="")
    leased.client.rpush("{pool:p}:inbox:t", "grant")
    leased.client.rpush("{pool:p}:work:h", "v")
    if forgotten != "nothing":
        leased.client.delete(f"{{pool:p}}:{forgotten}")
    if forgotten == "servers":
        leased.client.srem("{pool:p}:vms", "v")
        leased.client.delete("{pool:p}:vm:v", "{pool:p}:inbox:t")
    keys = len(list(leased.client.scan_iter("*")))

    leased.run("delete")

    assert list(leased.client.scan_iter("*")) == []
    assert leased.reply == keys


def test_the_stream_of_events_is_bounded(redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    recorder = Recorder(client, VMPool(client, "p", events_kept=10))
    register(recorder, host="", state="free")

    for _ in range(200):
        recorder.pool.acquire("me", timeout=5, heartbeat=False).release()

    assert client.xlen("{pool:p}:events") < 250
