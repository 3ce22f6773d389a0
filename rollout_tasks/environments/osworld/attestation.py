"""Asks the VM's host whether the desktop's own server still answers in the VM.

The worker asks, as a cell runs the task's code. The guest is not asked. docs/trust.md says what the answer means.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Literal

from rollout_tasks.environments.base import VMAccess, VMLost
from rollout_tasks.environments.osworld.task import metrics_of, results_of
from vm_pool.gate_client import connect
from vm_pool.providers.base import ATTEST
from vm_pool.states import Endpoint

Attestation = Literal["attested", "unattested"]

ANSWER_SECONDS = 20.0
_LARGEST_ANSWER = 1 << 16
_NOT_OF_THE_GUEST = frozenset({"cloud_file", "rule", "rule_relativeTime"})
"""Getters that do not ask the guest."""


def check_server(vm: VMAccess) -> bool:
    """Returns True if the VM's host confirms that the VM's own server answers.

    Returns:
        False if no host can tell.

    Raises:
        VMLost: Another server answers, or the host does not say.
    """
    if ATTEST not in vm.endpoint.ports:
        return False
    try:
        altered = _alterations(vm.endpoint)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise VMLost(f"the host of {vm.vm_id} does not say whether its server is the one it was: {error}") from error
    if altered:
        raise VMLost(f"the server of {vm.vm_id} is not what it was when the VM was handed out: {'; '.join(altered)}")
    return True


def forgeable(task: Mapping[str, Any]) -> bool:
    """Returns whether root in the guest could have forged the score.

    The agent may have been root there, even if it was told no password: everybody knows those of the images of
    this project and of OSWorld.
    """
    evaluator = task["evaluator"]
    return metrics_of(evaluator) != ["infeasible"] and any(
        getter["type"] not in _NOT_OF_THE_GUEST for getter in results_of(evaluator)
    )


def _alterations(endpoint: Endpoint) -> list[str]:
    deadline = time.monotonic() + ANSWER_SECONDS
    answer = b""
    with connect(endpoint, ATTEST) as connection:
        connection.settimeout(ANSWER_SECONDS)
        while part := connection.recv(_LARGEST_ANSWER):
            answer += part
            left = deadline - time.monotonic()
            if left <= 0 or len(answer) > _LARGEST_ANSWER:
                raise ValueError("its answer does not end")
            connection.settimeout(left)
    if not answer:
        raise ValueError("the connection was closed")
    return [str(sentence) for sentence in json.loads(answer)["altered"]]
