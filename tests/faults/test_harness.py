"""What plays and judges: that it reads the protocol, names and counts requests, finds points again, and sees what is wrong."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from tests.faults import naming
from tests.faults.files import points_of_calls
from tests.faults.kinds import Kind
from tests.faults.machines import Touch, two_users
from tests.faults.play import Outcome
from tests.faults.points import Place, Point, Recording, points_of
from tests.faults.processes import owner_of_connection
from tests.faults.resp import Command, Commands, Replies
from tests.faults.server import LOST_SECONDS, ForgetfulServer
from tests.faults.session import Requests, Task, chosen
from tests.faults.strace import Call, calls_in

WORDS = st.lists(st.binary(max_size=30), min_size=1, max_size=5)
REPLIES = st.recursive(
    st.sampled_from(
        [b"+OK\r\n", b"-ERR no\r\n", b":12\r\n", b"$-1\r\n", b"*-1\r\n", b"_\r\n", b"$4\r\na\r\nb\r\n", b"%0\r\n"]
    ),
    lambda inner: st.lists(inner, max_size=3).map(lambda parts: b"*%d\r\n" % len(parts) + b"".join(parts)),
    max_leaves=8,
)


def packed(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def command(*words: str) -> Command:
    raw = packed(*(word.encode() for word in words))
    return Commands().feed(raw)[0]


@given(st.lists(WORDS, min_size=1, max_size=4), st.integers(1, 40))
def test_commands_are_cut_wherever_the_bytes_are(commands: list[list[bytes]], size: int) -> None:
    stream = b"".join(packed(*words) for words in commands)
    parser = Commands()
    found = [one for at in range(0, len(stream), size) for one in parser.feed(stream[at : at + size])]
    assert [list(one.words) for one in found] == commands
    assert b"".join(one.raw for one in found) == stream


@given(st.lists(REPLIES, min_size=1, max_size=4), st.integers(1, 40))
def test_replies_are_cut_wherever_the_bytes_are(replies: list[bytes], size: int) -> None:
    stream = b"".join(replies)
    parser = Replies()
    found = [one for at in range(0, len(stream), size) for one in parser.feed(stream[at : at + size])]
    assert found == replies


@pytest.mark.parametrize(
    ("commands", "name"),
    [
        ([command("HSET", "{run:20261122-desk-1a2b}:items", "a", "b")], "HSET {run}:items"),
        ([command("BRPOP", "finalize", "rollout.desk", "1")], "BRPOP"),
        ([command("AUTH", "secret"), command("SELECT", "0")], "connect"),
        ([command("MULTI"), command("LLEN", "finalize"), command("EXEC")], "transaction LLEN finalize"),
        ([command("BLPOP", "{pool:default}:inbox:0123456789abcdef01234567", "1")], "BLPOP {pool:default}:inbox:*"),
        ([command("PUBLISH", "/0.celeryev/worker.heartbeat", "{}")], "PUBLISH celeryev"),
    ],
)
def test_a_request_has_one_name_in_every_play(commands: list[Command], name: str) -> None:
    assert naming.name_of(commands) == name


def test_scripts_have_their_files_names_however_they_are_sent() -> None:
    sha, (name, source) = next(item for item in naming.script_sources().items() if item[1][0] == "run commit")
    sent = [command("EVALSHA", sha, "1", "k"), command("EVAL", source, "1", "k"), command("SCRIPT", "LOAD", source)]
    assert {naming.name_of([one]) for one in sent} == {name}
    assert "hset" in naming.commands_inside([sent[0]])


def test_points_are_the_first_a_middle_and_the_last_time_of_what_two_recordings_share() -> None:
    often, once, chance = (Place("child", "running", name) for name in ("often", "once", "chance"))
    recordings = [
        Recording({often: 7, once: 1, chance: 1}, {often: {"get"}, once: {"set"}, chance: set()}),
        Recording({often: 5, once: 1}, {often: {"get"}, once: {"set"}}),
    ]
    found = {point.id: point.number for point in points_of(recordings)}
    assert found == {
        "child/running/often/first": 1,
        "child/running/often/middle": 3,
        "child/running/often/last": 5,
        "child/running/once/first": 1,
    }


def _tasks(number: int) -> list[Task]:
    points = [Point("child", "running", f"GET {at}", "first", 1, ("get",)) for at in range(number)]
    return [Task(point, kind) for point in points for kind in (Kind.LATE, Kind.RESET)]


def test_shards_share_out_every_play_and_a_resumed_session_repeats_none() -> None:
    tasks = _tasks(11)
    shards = [chosen(tasks, seed=3, shard=(number, 4)) for number in range(1, 5)]
    assert sorted((t.point.id, t.kind) for shard in shards for t in shard) == sorted(
        (t.point.id, t.kind) for t in tasks
    )
    done = [Outcome(task.point.id, task.kind, "right", 1.0) for task in shards[0][:2]]
    assert chosen(tasks, seed=3, shard=(1, 4), done=done) == shards[0][2:]
    points = [json.loads(json.dumps(asdict(task.point))) for task in tasks]
    assert [Requests().point(values) for values in points] == [task.point for task in tasks]


def test_a_point_is_found_by_its_whole_name_or_by_a_part_of_it() -> None:
    tasks = _tasks(12)
    assert {task.point.name for task in chosen(tasks, points=["child/running/GET 1/first"])} == {"GET 1"}
    assert {task.point.name for task in chosen(tasks, points=["GET 1"])} == {"GET 1", "GET 10", "GET 11"}
    assert {task.kind for task in chosen(tasks, kinds=["late"])} == {Kind.LATE}


def _touches(*touched: tuple[int, str, str]) -> list[Touch]:
    return [Touch(float(at), vm, what, who) for at, (vm, what, who) in enumerate(touched)]


def test_one_user_between_two_resets_is_right() -> None:
    touches = _touches(
        (0, "reset", ""), (0, "act", "a"), (1, "act", "b"), (0, "reset", ""), (0, "look", "c"), (1, "act", "b")
    )
    assert two_users(touches) == []


def test_two_users_between_two_resets_are_seen() -> None:
    problems = two_users(_touches((0, "reset", ""), (0, "act", "a"), (0, "act", "b"), (0, "act", "a")))
    assert problems == ["VM 0: a (act) while a, b had it", "VM 0: b (act) while a had it"]


def test_a_user_who_goes_on_after_a_reset_is_seen() -> None:
    assert two_users(_touches((0, "act", "a"), (0, "reset", ""), (0, "look", "a"))) == [
        "VM 0: a went on (look) after the VM was reset"
    ]


def test_the_owner_of_a_connection_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        threading.Thread(target=listener.accept, daemon=True).start()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            near = connection.getsockname()[1]
            assert owner_of_connection(near, port, [("init", 1), ("us", os.getpid())])[0] in {"us", "init"}
            assert owner_of_connection(near, port, []) == ("gone", 0)


def test_a_server_can_lose_its_last_second_and_no_more(tmp_path: Path) -> None:
    server = ForgetfulServer(tmp_path)
    server.begin()
    try:
        client = redis.Redis.from_url(server.url)
        client.set("old", "1")
        time.sleep(LOST_SECONDS + 0.5)
        client.set("new", "1")
        server.come_back(lose_last_second=False)
        assert client.mget("old", "new") == [b"1", b"1"]
        time.sleep(LOST_SECONDS + 0.5)
        client.set("newer", "1")
        server.come_back(lose_last_second=True)
        assert client.mget("old", "new", "newer") == [b"1", b"1", None]
    finally:
        server.end()


def test_outcomes_say_how_to_play_them_again() -> None:
    outcome = Outcome("child/running/run commit/first", "late", "wrong", 1.0, ["x"])
    assert outcome.again == "python -m tests.faults --point 'child/running/run commit/first' --kind late"
    assert Outcome(**json.loads(json.dumps(asdict(outcome)))) == outcome


def test_calls_on_a_runs_files_are_read_from_strace() -> None:
    folder = Path("/results/run-1")
    traced = """\
7 openat(AT_FDCWD</repo>, "/results/run-1/item-0/0/attempt-1/.result.json.7.tmp", O_WRONLY|O_CREAT, 0644) = 9</results/x>
9 write(9</results/run-1/item-0/0/attempt-1/.result.json.7.tmp>, "{\\"a\\": 1}", 8) = 8
7 write(2</var/log/worker>, "a line", 6) = 6
7 rename("/results/run-1/item-0/0/attempt-1/.result.json.7.tmp", "/results/run-1/item-0/0/attempt-1/result.json") = 0
7 openat(AT_FDCWD</repo>, "/results/run-1/item-1/0/attempt-1/result.json", O_RDONLY) = -1 ENOENT (No such file or directory)
7 mkdirat(5</results/run-1>, "item-2", 0777) = 0
7 fsync(8</elsewhere>) = 0
7 fsync(9</results/run-1/item-2/0/attempt-1/#77 (deleted)>) = 0
7 linkat(4</proc/7/fd>, "9", AT_FDCWD</repo>, "/results/run-1/item-2/0/attempt-1/result.json", AT_SYMLINK_FOLLOW) = 0
"""
    result = "{item}/0/attempt-1/result.json"
    written = "{item}/0/attempt-1/.result.json.{pid}.tmp"
    assert calls_in(traced, folder, "child", 7) == [
        Call("child", 7, "openat", written, written, makes=True),
        Call("child", 7, "write", written, written, makes=True),
        Call("child", 7, "rename", "{item}/0/attempt-1/result.json", written, makes=True),
        Call("child", 7, "mkdirat", "{item}", "{item}", makes=True),
        Call("child", 7, "fsync", "{item}/0/attempt-1/(nameless)", "", makes=False, number=2),
        Call("child", 7, "linkat", result, result, makes=True),
    ]


def test_calls_of_a_submission_that_makes_its_folder_are_known_by_number_or_by_what_comes_of_them() -> None:
    folder = Path("/results/run-1")
    made = "/results/.run-1.a1b2c3d4.new-run"
    traced = f"""\
7 mkdir("/elsewhere", 0777) = 0
7 mkdir("{made}", 0777) = 0
7 mkdir("/results/.run-2.a1b2c3d4.new-run", 0777) = 0
7 openat(AT_FDCWD</repo>, "{made}/.run.json.7-7.tmp", O_WRONLY|O_CREAT, 0644) = 9</results/x>
7 write(9<{made}/.run.json.7-7.tmp>, "{{}}", 2) = 2
7 fsync(9<{made}/.run.json.7-7.tmp>) = 0
7 rename("{made}/.run.json.7-7.tmp", "{made}/run.json") = 0
7 rename("{made}", "/results/run-1") = 0
7 fsync(9</results>) = 0
"""
    assert calls_in(traced, folder, "submitter", 7) == [
        Call("submitter", 7, "mkdir", "(new folder)", "", makes=True, number=2),
        Call("submitter", 7, "fsync", "(new folder)/.run.json.{pid}-{pid}.tmp", "", makes=False),
        Call("submitter", 7, "rename", "(new folder)/run.json", "", makes=True),
        Call("submitter", 7, "rename", ".", "", makes=True, number=2),
    ]


def test_points_of_calls_are_those_that_every_recording_has() -> None:
    once, twice = (Call("submitter", pid, "fsync", "run.json", "run.json", makes=False) for pid in (3, 4))
    chance = Call("child", 5, "unlink", "x", "x", makes=False)
    found = points_of_calls([[once, once, chance], [twice, twice]])
    assert [(point.id, point.number, point.by_one) for point in found] == [
        ("submitter/fsync/run.json/first", 1, True),
        ("submitter/fsync/run.json/last", 2, True),
    ]
