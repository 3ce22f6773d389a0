"""Whether a score came from the VM's own server: asked of its host before and after the evaluation, and said of the score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rollout_tasks.environments.base import VMLost
from tests.desktops import needs_local_desktops
from tests.integration.environments.osworld.conftest import Desk, Play
from vm_pool.gate import Gate

pytestmark = [needs_local_desktops, pytest.mark.usefixtures("clean")]

Begin = Callable[..., Play]
TAMPER = "echo password | sudo -S -p '' sh -c 'echo >>/usr/lib/guest/python/server/app.py'"


def prints(command: str) -> dict[str, Any]:
    """An evaluator that is satisfied once a command in the guest has printed 1."""
    return {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": command, "shell": True},
        "expected": {"type": "rule", "rules": {"expected": "1\n"}},
    }


def test_a_score_of_the_vms_own_server_is_attested(play: Begin) -> None:
    playing = play(evaluator=prints("echo 1"))

    assert playing.environment.attestation is None
    assert playing.environment.evaluate() == 1.0
    assert playing.environment.attestation == "attested"


@pytest.mark.usefixtures("trusted")
def test_it_is_also_where_tasks_are_trusted(play: Begin) -> None:
    playing = play(evaluator=prints("echo 1"))

    playing.environment.evaluate()

    assert playing.environment.attestation == "attested"


def test_a_server_that_the_agent_altered_loses_the_vm(play: Begin, desk: Desk) -> None:
    playing = play(evaluator=prints("echo 1"))
    desk.run(TAMPER)

    with pytest.raises(VMLost, match=r"not what it was .*: written over: /usr/lib/guest"):
        playing.environment.evaluate()

    assert playing.environment.attestation is None


def test_one_that_is_altered_during_the_evaluation_does_too(play: Begin) -> None:
    playing = play(evaluator=prints(f"{TAMPER}; echo 1"))

    with pytest.raises(VMLost, match="written over: /usr/lib/guest"):
        playing.environment.evaluate()


def test_a_host_that_does_not_say_loses_the_vm(play: Begin, desk: Desk) -> None:
    def deny(purpose: str) -> Any:
        if purpose == "attest":
            raise OSError("no")
        return desk.provider.connect(desk.vm_id, purpose)

    desk.gate = replaced(desk, deny)
    playing = play(evaluator=prints("echo 1"))

    with pytest.raises(VMLost, match="does not say whether its server is the one it was"):
        playing.environment.evaluate()


@pytest.mark.parametrize(
    ("evaluator", "attestation"),
    [
        (prints("echo 1"), "unattested"),
        ({"func": "infeasible"}, None),
    ],
)
def test_where_no_host_can_tell_it_is_said(
    play: Begin, desk: Desk, evaluator: dict[str, Any], attestation: str | None
) -> None:
    desk.gate = replaced(desk, lambda purpose: desk.provider.connect(desk.vm_id, purpose), without="attest")
    playing = play(evaluator=evaluator)

    playing.environment.evaluate()

    assert playing.environment.attestation == attestation


def replaced(desk: Desk, dial: Callable[[str], Any], without: str = "") -> Gate:
    """Another gate in the place of the desk's."""
    assert desk.gate is not None
    purposes = [purpose for purpose in desk.gate.endpoint.ports if purpose != without]
    desk.gate.close()
    return desk.gates.open(purposes, dial)
