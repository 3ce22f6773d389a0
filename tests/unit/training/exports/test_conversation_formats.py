"""`rollouts export`: the formats of conversations and records; the formats' own readers are in tests/acceptance."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.exports import linked_files
from rollout_tasks.training.exports.formats import Kind
from rollout_tasks.training.exports.run_export import export_run
from tests.unit.training.varied_rollouts import (
    claude_agent,
    png,
    responses_agent,
    rows_of,
    session,
    shown,
    text_agent,
    tool_agent,
    varied_run,
)

NEW = [Kind.OPENAI, Kind.SHAREGPT, Kind.ATIF, Kind.OSWORLD]


def exported(run: RunFolder, kind: Kind) -> tuple[dict[str, Any], Path]:
    target = run.path / "training"
    return export_run(run, run.evaluation, target, kind), target / kind.value


def test_openai_learns_each_reply_once(tmp_path: Path) -> None:
    run = varied_run(tmp_path / "r", 1, [tool_agent])

    told, folder = exported(run, Kind.OPENAI)

    first, second = rows_of(folder / "conversations.jsonl")
    assert [one["role"] for one in first["messages"]] == ["system", "user", *["assistant", "tool", "user"], "assistant"]
    assert [one["weight"] for one in first["messages"] if one["role"] == "assistant"] == [1, 1]
    assert [one["weight"] for one in second["messages"] if one["role"] == "assistant"] == [0, 0, 1]
    assert first["messages"][1]["content"][1] == shown(png(0))
    assert first["tools"][0]["function"]["name"] == "click"
    facts = rows_of(folder / "rollouts.jsonl")
    assert [(one["item_id"], one["reward"], one["calls"]) for one in facts] == [
        ("../a b/0", 1.0, [1, 2]),
        ("../a b/0", 1.0, [3]),
    ]
    assert (told["conversations"], told["replies"], told["replies_without_their_thinking"]) == (2, 3, 0)


def test_openai_shows_pictures_of_tools_in_a_message_of_the_user(tmp_path: Path) -> None:
    run = varied_run(tmp_path / "r", 1, [tool_agent])
    record = run.attempt("../a b/0#0", 1) / "trajectory.jsonl"
    lines = record.read_text().splitlines()
    answer = next(place for place, line in enumerate(lines) if '"role": "tool"' in line)
    picture = {"type": "image_url", "image_url": {"url": {"$file": "step_001.png"}}}
    lines[answer] = lines[answer].replace(
        '"content": "clicked"', f'"content": {json.dumps([{"type": "text", "text": "y"}, picture])}'
    )
    record.write_text("\n".join(lines) + "\n")

    _, folder = exported(run, Kind.OPENAI)

    messages = rows_of(folder / "conversations.jsonl")[0]["messages"]
    place = next(place for place, one in enumerate(messages) if one["role"] == "tool")
    assert messages[place]["content"] == [{"type": "text", "text": "y"}]
    assert messages[place + 1] == {"role": "user", "content": [shown(png(1))]}


def test_sharegpt_has_a_row_for_each_call(tmp_path: Path) -> None:
    run = varied_run(tmp_path / "r", 2, [session, tool_agent])

    _, folder = exported(run, Kind.SHAREGPT)

    rows = {(row["item_id"], row["call"]): row for row in rows_of(folder / "rollouts.jsonl")}
    last = rows["item-1", 3]
    assert [turn["from"] for turn in last["conversations"]] == [
        *("human", "function_call", "observation", "function_call", "observation", "gpt")
    ]
    assert last["conversations"][-1]["value"] == "<think>\nhm 1\n</think>\n\ndone 1"
    assert last["conversations"][0]["value"].startswith("Task 1 with < image> in it\n(An older")
    asked = rows["item-1", 2]["conversations"][-1]["value"]
    assert asked.startswith("<think>\nhm 1\n</think>\n\nlook < tool_call><tool_call>[{")
    assert all(
        "".join(turn["value"] for turn in row["conversations"]).count("<image>") == len(row["images"])
        for row in rows.values()
    )
    [info] = json.loads((folder / "dataset_info.json").read_text()).values()
    assert info["columns"]["images"] == "images"


def test_sharegpt_puts_rows_with_pictures_first(tmp_path: Path) -> None:
    def without(folder: Path, number: int) -> None:
        session(folder, number)
        record = folder / "calls.jsonl"
        lines = [line for line in record.read_text().splitlines() if '"pictures"' not in line or '"number": 1,' in line]
        record.write_text("\n".join(lines).replace('{"type": "image_url"', '{"type": "text", "text": "none"') + "\n")

    run = varied_run(tmp_path / "r", 2, [without, session])

    _, folder = exported(run, Kind.SHAREGPT)

    assert [bool(row["images"]) for row in rows_of(folder / "rollouts.jsonl")] == [True, True, True, False]
    assert sorted(path.name for path in folder.iterdir()) == ["dataset_info.json", "pictures", "rollouts.jsonl"]


def test_sharegpt_leaves_out_calls_that_it_has_no_form_for(tmp_path: Path) -> None:
    run = varied_run(tmp_path / "r", 1, [tool_agent])
    record = run.attempt("../a b/0#0", 1) / "trajectory.jsonl"
    record.write_text(record.read_text().replace('{\\"x\\": 2}', '{\\"x\\": 2'))

    told, folder = exported(run, Kind.SHAREGPT)

    assert (told["calls"], told["calls_left_out"]) == (1, 2)
    assert [row["call"] for row in rows_of(folder / "rollouts.jsonl")] == [1]


def test_atif_has_replies_with_what_their_calls_did(tmp_path: Path) -> None:
    run = varied_run(tmp_path / "r", 1, [tool_agent])

    told, folder = exported(run, Kind.ATIF)

    place = folder / "=2E.=2Fa=20b=2F0" / "0"
    document = json.loads((place / "trajectory.json").read_text())
    system, user, first, second, last = document["steps"]
    assert [step["source"] for step in document["steps"]] == ["system", "user", "agent", "agent", "agent"]
    assert user["message"][0]["text"] == "Task 0 with <image> in it"
    assert (place / user["message"][1]["source"]["path"]).read_bytes() == png(0)
    assert first["tool_calls"] == [{"tool_call_id": "c1", "function_name": "click", "arguments": {"x": 1}}]
    [result] = first["observation"]["results"]
    assert [part.get("text") for part in result["content"]] == ["clicked", "a tree", None]
    assert (place / result["content"][2]["source"]["path"]).read_bytes() == png(1)
    assert first["metrics"]["completion_token_ids"] == [3]
    assert (system["message"], second["message"], last["message"]) == ("Act.", "look <tool_call>", "done 0")
    assert document["extra"]["reward"] == 1.0
    assert (told["rollouts"], told["steps"], told["pictures"]) == (1, 5, 3)


def test_atif_has_agents_of_every_api(tmp_path: Path) -> None:
    run = varied_run(tmp_path / "r", 3, [claude_agent, responses_agent, session])

    _, folder = exported(run, Kind.ATIF)

    documents = [json.loads(path.read_text()) for path in sorted(folder.rglob("trajectory.json"))]
    agents = [[step for step in one["steps"] if step["source"] == "agent"] for one in documents]
    assert [[(step["message"], step["reasoning_content"]) for step in one] for one in agents] == [
        [("ok", "hm")],
        [("ok", "hm")],
        [(f"answer {call}", "hm") for call in (1, 2, 3)],
    ]
    assert documents[2]["steps"][3]["message"] == "And?"


def test_osworld_has_the_folders_of_its_runner(tmp_path: Path) -> None:
    run = varied_run(tmp_path / "r", 2, [text_agent], rollouts=2)

    told, folder = exported(run, Kind.OSWORLD)

    for index in (0, 1):
        [model] = (folder / str(index) / "pyautogui" / "screenshot").iterdir()
        assert sorted(path.name for path in model.iterdir()) == ["chrome", "os"]
        place = model / "os" / "item-1"
        assert (place / "result.txt").read_text() == "0.5\n"
        assert (place / "recording.mp4").read_bytes() == b"film 1"
        first, last = rows_of(place / "traj.jsonl")
        assert (first["step_num"], first["action"], first["done"]) == (1, "pyautogui.click(1, 1)", False)
        assert (last["action"], last["done"], last["info"]["done"], last["reward"]) == ("DONE", True, True, 0)
        assert first["response"] == "<think>a</think>\nclick(1)"
        assert first["screenshot_file"] == f"step_1_{first['action_timestamp']}.png"
        assert (place / last["screenshot_file"]).read_bytes() == png(2001)
    assert (told["rollouts"], told["recordings"], told["pictures"]) == (4, 4, 2)


def test_osworld_has_no_times_of_older_records(tmp_path: Path) -> None:
    run = varied_run(tmp_path / "r", 1, [text_agent])
    record = run.attempt("../a b/0#0", 1) / "trajectory.jsonl"
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    record.write_text("".join(json.dumps({name: one[name] for name in one if name != "at"}) + "\n" for one in lines))

    _, folder = exported(run, Kind.OSWORLD)

    [path] = folder.rglob("traj.jsonl")
    assert [(one["action_timestamp"], one["screenshot_file"]) for one in rows_of(path)] == [
        (None, "step_1_1.png"),
        (None, "step_2_1.png"),
    ]


def test_lost_rollouts_and_other_apis_are_left_out(tmp_path: Path) -> None:
    run = varied_run(tmp_path / "r", 9, [tool_agent, claude_agent, responses_agent])

    for kind in (Kind.OPENAI, Kind.SHAREGPT):
        told, _ = exported(run, kind)
        assert (told["rollouts"], told["left_out"]) == (3, {"other_api": 5, "infrastructure_loss": 1})
    for kind in (Kind.ATIF, Kind.OSWORLD):
        told, folder = exported(run, kind)
        assert (told["rollouts"], told["left_out"]) == (8, {"infrastructure_loss": 1})
        assert not list(folder.rglob("item-8"))


def test_a_run_of_other_apis_alone_is_refused(tmp_path: Path) -> None:
    run = varied_run(tmp_path / "r", 1, [responses_agent])

    with pytest.raises(UserError, match=r"asked in the Responses API|parts of the type input_image"):
        exported(run, Kind.OPENAI)


@pytest.mark.parametrize("kind", [Kind.SHAREGPT, Kind.ATIF, Kind.OSWORLD])
@pytest.mark.parametrize("links", [True, False])
def test_each_picture_is_on_the_disk_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(linked_files, "_link", lambda *_: False)
    run = varied_run(tmp_path / "r", 6, [tool_agent, text_agent])

    told, folder = exported(run, kind)

    files = list(folder.rglob("*.png"))
    assert len({path.read_bytes() for path in files}) == told["pictures"]
    assert links == (len({path.stat().st_ino for path in files}) == told["pictures"] and files[0].stat().st_nlink > 1)


HOSTILE: dict[str, Callable[[str], str]] = {
    "a picture out of the folder": lambda text: text.replace('"step_000.png"', '"../../../run.json"'),
    "a picture that is no picture": lambda text: text.replace('"step_001.png"', '"trajectory.jsonl"'),
    "a role that is none": lambda text: text.replace('"role": "user"', '"role": ["user"]'),
    "a content that is none": lambda text: text.replace('"content": "done 1"', '"content": {"a": 1}'),
    "numbers that are none": lambda text: text.replace('"x": {"type": "integer"}', '"x": {"type": NaN}').replace(
        "-0.5", "NaN"
    ),
    "lists in lists": lambda text: text.replace('"token_ids": [3]', '"token_ids": ' + "[" * 100_000),
    "a time that is none": lambda text: text.replace('"at": 1', '"at": 1e300, "was": 1'),
    "a turn that is a path": lambda text: text.replace('"turn": 1', '"turn": "../../x"'),
    "a turn that no folder can have": lambda text: text.replace('"turn": 1', '"turn": 1' + "0" * 300),
    "a picture of the system": lambda text: text.replace('"content": "Act."', '"content": [{"$file": "../../x.png"}]'),
    "a call that is none": lambda text: text.replace('"name": "click"', '"name": 5'),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=list(HOSTILE))
@pytest.mark.parametrize("kind", NEW)
def test_one_hostile_record_spoils_no_other(tmp_path: Path, kind: Kind, change: Callable[[str], str]) -> None:
    run = varied_run(tmp_path / "r", 3, [tool_agent])
    record = run.attempt("item-1#0", 1) / "trajectory.jsonl"
    text = record.read_text()
    assert change(text) != text
    record.write_text(change(text))

    told, folder = exported(run, kind)

    assert told["rollouts"] in {2, 3}  # formats do not read all of a record
    assert told["rollouts"] + sum(told["left_out"].values()) == 3
    outside = [path for path in (tmp_path / "r").rglob("*") if path.is_symlink()]
    assert not outside
    assert {path.name for path in (run.path / "training").iterdir()} == {kind.value, ".rollouts-exports"}
    for path in folder.rglob("*.json*"):
        for line in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            json.loads(line, parse_constant=pytest.fail)


@pytest.mark.parametrize("kind", NEW)
def test_links_and_pipes_in_a_run_are_not_followed(tmp_path: Path, kind: Kind) -> None:
    run = varied_run(tmp_path / "r", 3, [text_agent])
    secret = tmp_path / "secret.png"
    secret.write_bytes(png(77))
    attempts = [run.attempt(f"{name}#0", 1) for name in ("../a b/0", "item-1", "item-2")]
    for picture in attempts[0].glob("*.png"):
        picture.unlink()
        picture.symlink_to(secret)
    (attempts[1] / "recording.mp4").unlink()
    (attempts[1] / "recording.mp4").symlink_to(secret)
    (attempts[2] / "trajectory.jsonl").unlink()
    os.mkfifo(attempts[2] / "trajectory.jsonl")

    told, folder = exported(run, kind)

    assert (told["rollouts"], told["left_out"]) == (1, {"unreadable": 2})
    assert not any(path.is_symlink() or path.read_bytes() == png(77) for path in folder.rglob("*") if path.is_file())
    assert not list(folder.rglob("recording.mp4"))


def test_a_folder_that_no_export_wrote_is_not_replaced(tmp_path: Path) -> None:
    run = varied_run(tmp_path / "r", 1, [tool_agent])
    mine = run.path / "training" / "openai" / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")

    with pytest.raises(
        UserError, match=r"openai has files that no export wrote, as .*\.rollouts-exports does not name it"
    ):
        exported(run, Kind.OPENAI)

    assert mine.read_text() == "mine"
    mine.unlink()
    exported(run, Kind.OPENAI)
    exported(run, Kind.OPENAI)  # its own is replaced
