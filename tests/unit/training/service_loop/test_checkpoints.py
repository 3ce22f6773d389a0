"""The newest checkpoint of a folder is asked for once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from rollout_tasks.errors import UserError
from rollout_tasks.models.pool.reloads import Reloads, Stage
from rollout_tasks.training.service_loop.checkpoints import Checkpoints


@pytest.fixture(name="client")
def _client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


def save(folder: Path, name: str, *, at: float = 0.0) -> Path:
    checkpoint = folder / name
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text("{}")
    os.utime(checkpoint, (at, at))
    return checkpoint


@pytest.mark.parametrize(
    ("names", "newest"),
    [
        ([], None),
        (["step-9", "step-10"], "step-10"),
        (["step-10", "step-9"], "step-10"),
        (["first", "second"], "second"),
        (["step-1", ".step-2"], "step-1"),
    ],
)
def test_which_one_is_the_newest(tmp_path: Path, client: redis.Redis, names: list[str], newest: str | None) -> None:
    (tmp_path / "step-99").mkdir()  # nothing is in it yet
    for at, name in enumerate(names):
        save(tmp_path, name, at=at)

    found = Checkpoints(tmp_path, "policy", client).newest()

    assert (found and found.name) == newest


def test_each_new_checkpoint_is_asked_for_once(tmp_path: Path, client: redis.Redis) -> None:
    checkpoints, reloads = Checkpoints(tmp_path, "policy", client), Reloads(client, "policy")
    assert (checkpoints.look(), checkpoints.progress()) == ("", "")
    first = save(tmp_path, "step-1")

    assert checkpoints.look() == "asked the servers for the weights of step-1"
    assert checkpoints.look() == ""
    wanted = reloads.wanted()
    assert wanted is not None
    assert (wanted.checkpoint, wanted.weight_version) == (str(first), "step-1")
    reloads.tell(wanted, "a", Stage.DONE)
    reloads.tell(wanted, "b", Stage.LOADING)
    assert checkpoints.progress() == "step-1: 1 of 2 servers have it"
    reloads.tell(wanted, "b", Stage.FAILED)
    assert checkpoints.progress() == "step-1: 1 of 2 servers have it, 1 could not load it"
    save(tmp_path, "step-2")
    assert Checkpoints(tmp_path, "policy", client).look() == "asked the servers for the weights of step-2"


def test_a_folder_that_is_not_there_yet_has_no_checkpoint(tmp_path: Path, client: redis.Redis) -> None:
    assert Checkpoints(tmp_path / "none", "policy", client).look() == ""


def test_a_file_in_the_place_of_the_folder(tmp_path: Path, client: redis.Redis) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UserError, match=r"--checkpoints: .*file: Not a directory"):
        Checkpoints(tmp_path / "file", "policy", client).look()
