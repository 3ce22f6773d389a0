"""Episodes of hundreds of turns: nothing in the way ends them, and what they cost grows with their turns alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout_tasks.config import Limits
from rollout_tasks.trajectories.reader import read_trajectory
from tests.unit.agents.chat_endpoint import ChatEndpoint, Gallery, play, pushes, said

TURNS = 500


@pytest.fixture
def endpoint() -> Iterator[ChatEndpoint]:
    endpoint = ChatEndpoint()
    yield endpoint
    endpoint.close()


@pytest.mark.slow
def test_five_hundred_turns_with_a_picture_each(endpoint: ChatEndpoint, tmp_path: Path) -> None:
    endpoint.will(*(pushes(1, turn=turn) for turn in range(1, TURNS)), said("It is open."))
    gallery = Gallery(pictures=1)

    episode = play(endpoint, gallery, tmp_path, limits=Limits(max_turns=TURNS))

    assert (episode.answer, episode.turns) == ("It is open.", TURNS)
    assert len(gallery.shown) == TURNS
    record = read_trajectory(tmp_path)
    assert (len(record.replies), len(record.steps)) == (TURNS, TURNS - 1)
    last = record.replies[-1]
    assert record.prompt(last) == endpoint.bodies[-1]["messages"], (
        "a prompt is rebuilt from the record, however long it is"
    )
    assert sum(body.count("image_url") for body in map(str, endpoint.bodies[-1:])) <= 2 * 10, (
        "with the newest pictures only"
    )
