"""quickstart.sh for a user who is not root, on a machine that runs desktops in containers for root alone."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.other_user import OtherUser, needs_lent_ids
from tests.other_user import other_user as other_user

SCORE = re.compile(r"^  (\w+/[\w-]+) +(\d) +(\d)$", re.MULTILINE)
NO_CONTAINERS = "No desktops of the provider local here: --provider-name: local desktops need root"

pytestmark = needs_lent_ids


@pytest.mark.slow
def test_without_any_desktops_the_light_items_are_rolled_out_and_the_reasons_said(other_user: OtherUser) -> None:
    done = other_user.run("./scripts/quickstart.sh", seconds=200, lends=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.startswith(NO_CONTAINERS)
    assert "65536 ids in /etc/subuid: run 'sudo usermod" in done.stderr
    assert "So only the light environments are shown." in done.stdout
    assert SCORE.findall(done.stdout) == []
    assert re.search(r"overall .* 25 .* 25 .* 100", done.stdout)
    assert len(list((other_user.repository / "results").iterdir())) == 1
    shutil.rmtree(other_user.repository / "results")


def verdicts(user: OtherUser) -> str:
    """What every rollout of desktops came to, for the message of a failed test."""
    return "\n".join(path.read_text() for path in sorted(user.repository.glob("results/*/*/*/result.json")))


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_user_who_is_not_root_sees_tasks_on_virtual_machines(other_user: OtherUser) -> None:
    done = other_user.run("./scripts/quickstart.sh", seconds=2300)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.startswith(NO_CONTAINERS)
    scores = SCORE.findall(done.stdout)
    emulated = "Virtual machines are emulated here" in done.stdout
    assert len(scores) == (3 if emulated else 13), done.stdout + done.stderr[-4000:]
    assert {(right, wrong) for _task, right, wrong in scores} == {("1", "0")}, done.stdout + verdicts(other_user)
    assert re.search(r"^Look at one: results/.*/recording\.mp4$", done.stdout, re.MULTILINE)
    assert [path.name for path in (other_user.cache / "qemu").iterdir() if path.is_dir()] == []
    assert len(list((other_user.repository / "results").iterdir())) == 2
