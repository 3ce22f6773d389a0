"""Tasks whose score cannot be relied on in the VMs at hand are left out of a run unless asked for, and named either way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from benchmark.items import Item
from benchmark.stored_report import read_report
from desktop_image.cache import guest_cache_folder
from desktop_image.conformance.facts import Facts, packed
from desktop_image.image_facts import facts_folder_name
from desktop_image.root import guest_image_name
from rollout_tasks.cli import conformance_table, run_actions
from rollout_tasks.environments.base import Conformance
from rollout_tasks.errors import UserError
from rollout_tasks.runs.finalize import score_run
from rollout_tasks.runs.folder import RunFolder
from tests.conftest import REPOSITORY
from tests.unit.runs.test_run_commands import Shell, shell  # noqa: F401 (a fixture)
from vm_pool.host_client import HostClient
from vm_pool.images import publish_image
from vm_pool.pool import VMPool
from vm_pool.states import VMState

FACTS = Facts({"program": frozenset({"ls"}), "file": frozenset({"/etc/hostname"})})


def task(name: str, *command: str) -> dict[str, Any]:
    evaluator = {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": list(command)},
        "expected": {"type": "rule", "rules": {"expected": "x"}},
    }
    return {
        "id": name,
        "question": "Do it.",
        "metadata": {"id": name, "domain": "os", "instruction": "Do it.", "config": [], "evaluator": evaluator},
    }


TASKS = [task("right", "ls"), task("coded", "code", "--version"), task("filed", "ls", "/etc/nothing")]
SAID = [
    "item 'coded': needs the program code (evaluator.result)",
    "item 'filed': is unfaithful in these VMs: it has no /etc/nothing (evaluator.result)",
]


def host(client: redis.Redis, name: str, image: str, facts: str) -> None:
    """Registers a VM of an image."""
    pool = VMPool(client, "default")
    side = HostClient(pool, name, silent_after=60)
    side.trust(side.beat(take_over=True).server)
    side.register(f"{name}-0", VMState.INITIALIZING, needs_reset=True, known_fence=0)
    if image:
        publish_image(pool, name, image, facts)


def options(**more: Any) -> dict[str, Any]:
    return {"env_mode": "osworld", "agent": "simulated", "vm": {"provider_name": "local"}, **more}


def test_they_are_left_out_and_named(shell: Shell) -> None:  # noqa: F811
    host(shell.client, "a", "core-1", packed(FACTS))

    assert shell.call(run_actions.submit, shell.config(*TASKS, **options())) == 0

    assert [item.id for item in shell.run.description.items()] == ["right"]
    assert shell.err.splitlines() == [f"left out: {sentence}" for sentence in SAID]
    about = shell.run.description.document()["benchmark"]
    assert (about["left_out"], about["doubted"]) == (SAID, [])


def test_they_are_rolled_out_when_asked_for_and_named_all_the_same(shell: Shell) -> None:  # noqa: F811
    host(shell.client, "a", "core-1", packed(FACTS))

    config = shell.config(*TASKS, **options(desktop={"include_unfaithful": True}))
    assert shell.call(run_actions.submit, config) == 0

    assert [item.id for item in shell.run.description.items()] == ["right", "coded", "filed"]
    assert shell.err.splitlines() == [f"not to be relied on: {sentence}" for sentence in SAID]
    about = shell.run.description.document()["benchmark"]
    assert (about["left_out"], about["doubted"]) == ([], SAID)


def test_a_dry_run_has_a_table_of_all(shell: Shell) -> None:  # noqa: F811
    host(shell.client, "a", "core-1", packed(FACTS))
    config = shell.config(*TASKS, **options())

    assert shell.call(run_actions.submit, config, dry_run=True) == 0
    assert "3 tasks: 1 faithful, 1 unfaithful, 1 needs" in shell.out
    assert "the program code" in " ".join(shell.out.replace("│", " ").split())
    assert "items: 1, rollouts: 1" in shell.out
    assert "The items in osworld need: " in shell.out

    assert shell.call(run_actions.submit, config, dry_run=True, as_json=True) == 0
    said = json.loads(shell.out)["conformance"]
    assert said["counts"] == {"faithful": 1, "unfaithful": 1, "needs": 1}
    assert [(one["task"], one["verdict"]) for one in said["tasks"]] == [
        ("right", "faithful"),
        ("coded", "needs"),
        ("filed", "unfaithful"),
    ]


def test_a_run_of_nothing_else_is_refused(shell: Shell) -> None:  # noqa: F811
    host(shell.client, "a", "core-1", packed(FACTS))

    with pytest.raises(UserError, match=r"^no item's score can be relied on in these VMs: --include-unfaithful"):
        shell.call(run_actions.submit, shell.config(*TASKS[1:], **options()))
    assert not shell.run.path.exists()


def test_what_one_of_several_images_lacks_is_lacking(shell: Shell) -> None:  # noqa: F811
    more = Facts({"program": frozenset({"ls", "code"}), "file": frozenset({"/etc/nothing"})})
    host(shell.client, "a", "full-1", packed(more))
    assert shell.call(run_actions.submit, shell.config(*TASKS, **options())) == 0
    assert shell.err == ""

    host(shell.client, "b", "core-1", packed(FACTS))
    assert shell.call(run_actions.submit, shell.config(*TASKS, **options(run_id="night-2"))) == 0
    assert shell.err.splitlines() == [f"left out: {sentence}" for sentence in SAID]


@pytest.mark.parametrize(("image", "facts"), [("", ""), ("core-1", ""), ("core-1", "of another version")])
def test_vms_of_which_nothing_is_known_leave_nothing_out(shell: Shell, image: str, facts: str) -> None:  # noqa: F811
    host(shell.client, "a", image, facts)

    assert shell.call(run_actions.submit, shell.config(*TASKS, **options())) == 0

    assert len(shell.run.description.items()) == 3
    assert shell.err == (
        "note: what the VMs of a have was never examined, so it is not known which tasks they can serve and score;"
        " rollouts image build --check examines them\n"
    )


def test_what_is_known_on_this_machine_serves_too(
    shell: Shell,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = guest_cache_folder() / facts_folder_name(guest_image_name("core"))
    folder.mkdir(parents=True)
    (folder / "facts").write_text(packed(FACTS))

    host(shell.client, "a", guest_image_name("core"), "")
    assert shell.call(run_actions.submit, shell.config(*TASKS, **options())) == 0
    assert [item.id for item in shell.run.description.items()] == ["right"]

    own = options(run_id="night-2", vm={"provider_name": "local", "use_pool": False})
    assert shell.call(run_actions.submit, shell.config(*TASKS, **own)) == 0
    assert shell.err.splitlines() == [f"left out: {sentence}" for sentence in SAID]


def test_the_run_and_its_report_say_what_the_desktops_are_made_from(shell: Shell) -> None:  # noqa: F811
    host(shell.client, "a", "core-1", packed(FACTS))
    host(shell.client, "b", "core-1", packed(FACTS))
    host(shell.client, "c", "", "")
    shell.call(run_actions.submit, shell.config(TASKS[0], **options()))

    reports = score_run(shell.run, "exact_match")

    images = ["core-1 (hosts a, b)", "an unnamed image (hosts c)"]
    assert sorted(shell.run.description.document()["images"]) == sorted(images)
    assert sorted(read_report(reports.json)["benchmark_info"]["images"]) == sorted(images)
    assert "| Desktops | " in reports.markdown.read_text()
    assert "core-1 (hosts a, b)" in reports.markdown.read_text()
    own = options(run_id="night-2", vm={"provider_name": "local", "use_pool": False})
    shell.call(run_actions.submit, shell.config(TASKS[0], **own))
    (image,) = RunFolder(shell.folder / "results" / "night-2").description.document()["images"]
    assert image == f"{guest_image_name('core')} (provider local)"


def test_items_without_a_desktop_are_not_compared(shell: Shell) -> None:  # noqa: F811
    host(shell.client, "a", "core-1", packed(FACTS))
    light = {**TASKS[1], "env_config": {"env_mode": "simulated"}}

    assert shell.call(run_actions.submit, shell.config(light, **options())) == 0

    assert [item.id for item in shell.run.description.items()] == ["coded"]


def test_what_a_task_is_called_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    item = Item("[b]one", "?", metadata={"domain": "[/os]"})

    conformance_table.show([Conformance(item, "unfaithful", ("it has no [red]",))])

    shown = capsys.readouterr().out
    assert all(word in shown for word in ("[b]one", "[/os]", "it has no [red]"))


def test_a_check_refuses_what_a_submission_refuses(tmp_path: Path) -> None:
    broken = task("broken", "ls")
    broken["metadata"]["evaluator"]["func"] = "no_such_metric"
    broken["metadata"]["config"] = "oops"
    (tmp_path / "tasks.jsonl").write_text(json.dumps(broken) + "\n")
    command = [
        sys.executable,
        "scripts/build_guest.py",
        "--check",
        str(tmp_path / "tasks.jsonl"),
        "--provider",
        "nobody",
    ]

    refused = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: ")
    assert "item 'broken': config must be a list of setup steps" in refused.stderr


def test_of_many_hosts_of_which_nothing_is_known_three_are_named(shell: Shell) -> None:  # noqa: F811
    for name in "abcd":
        host(shell.client, name, "core-1", "")

    assert shell.call(run_actions.submit, shell.config(*TASKS, **options())) == 0

    assert shell.err.startswith("note: what the VMs of a, b, c have was never examined, ")
