"""Profiles of one's own: read from a file, and everything that may be wrong with it in one sentence."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.agents.profiles.built_in import BUILT_IN
from rollout_tasks.agents.profiles.profile import PackagedText, Profile
from rollout_tasks.agents.profiles.profile_file import checked_profile, read_profile
from rollout_tasks.errors import UserError

WHOLE = """
name: mine
version: 3
protocol: ui_tars
prompts: {task: "Do: {instruction}"}
places: {span: picture}
"""


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))


def written(folder: Path, text: str) -> Path:
    file = folder / "mine.yaml"
    file.write_text(text)
    return file


def test_a_whole_profile(tmp_path: Path) -> None:
    profile = read_profile(written(tmp_path, WHOLE))

    assert (profile.name, profile.version, profile.prompts.task) == ("mine", "3", "Do: {instruction}")
    assert profile.history.images == 5


def test_one_that_is_based_on_another_and_has_texts_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "system.txt").write_text("You are mine.\n")
    text = """
base: opencua
name: mine
prompts:
  system: {file: system.txt}
  step: ["Step {number}: ", {module: mm_agents.opencua.prompts, name: ACTION_HISTORY_TEMPLATE}]
history: {images: 2}
"""
    profile = read_profile(written(tmp_path, text))

    base = BUILT_IN["opencua"]
    assert profile.prompts.system == "You are mine.\n"
    assert profile.prompts.step == (
        "Step {number}: ",
        PackagedText(module="mm_agents.opencua.prompts", name="ACTION_HISTORY_TEMPLATE"),
    )
    assert (profile.prompts.task, profile.history.older) == (base.prompts.task, "action")
    assert (profile.history.images, base.history.images) == (2, 3)


def test_a_field_of_the_request_replaces_the_bases_whole(tmp_path: Path) -> None:
    """Half of another way to think is refused by the API."""
    text = "base: claude\nname: mine\nsampling: {extra: {thinking: {type: adaptive}, top_k: 5}}"
    sampling = read_profile(written(tmp_path, text)).sampling

    assert sampling.extra == {"thinking": {"type": "adaptive"}, "top_k": 5}
    assert sampling.max_tokens == BUILT_IN["claude"].sampling.max_tokens


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_profiles_are_values(name: str) -> None:
    profile = BUILT_IN[name]
    assert profile.name == name
    assert Profile.model_validate(profile.model_dump(mode="json")) == profile


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a mapping of a profile's fields"),
        ("a: [", "is not YAML: "),
        (WHOLE + "colour: red", "colour: is not an option"),
        (WHOLE + "history: {image: 3}", "history.image: is not an option; did you mean images?"),
        (WHOLE + "history: {images: 0}", "history.images: must be at least 1, got 0"),
        (
            WHOLE.replace("ui_tars", "claude"),
            "protocol: must be ui_tars, qwen, thought_action_code, responses_computer or anthropic_computer, got 'claude'",
        ),
        (WHOLE.replace("span: picture", "span: grid"), "places: grid and the span grid belong together"),
        (WHOLE.replace('{task: "Do: {instruction}"}', "{}"), "prompts.task: is missing"),
        (WHOLE + "pictures: {format: png, quality: 3}", "pictures: only jpeg and webp have a quality"),
        (WHOLE + "pictures: {resize: {factor: 28}}", "pictures: a picture that is resized has a new format"),
        (WHOLE + "sampling: {temperature: .nan}", "sampling.temperature: must be "),
        (WHOLE + "computer_tool: computer", "computer_tool must be None with the protocol ui_tars"),
        ("base: claude\ncomputer_tool: computer", "computer_tool must be computer_20250124 or computer_20251124 with"),
        (WHOLE + "pictures: {format: png, size: [2, 2], resize: {factor: 1}}", "resize and size exclude each other"),
        (
            "base: nobody",
            "base: must be a built-in profile: claude, openai-cua, opencua, qwen2.5-vl, qwen3-vl, qwen3.5, uitars-1.5,"
            " uitars-2",
        ),
        ("base: [1]", "base: must be a built-in profile"),
        ("base: opencua\nprompts: {system: {file: no.txt}}", "no.txt: cannot be read: No such file"),
        ("base: opencua\nprompts: {system: {file: 3}}", "prompts.system: file must be a file's name"),
        ("base: opencua\nprompts: {system: {module: 'a b', name: x}}", "prompts.system"),
        (WHOLE.replace("version: 3", "version: 1.10"), "version: write it in quotes, as in '1.10'"),
        (WHOLE + "name: twice", "name occurs twice, in lines 2 and 7"),
        (BOMB, "its aliases stand for more than 20000 values"),
        ("a: &a [*a]", "line 1: an alias stands in what it stands for"),
        (
            "base: opencua\nhistory: {images: 2}",
            "name: opencua with version 1 is the built-in profile: give yours another",
        ),
        (
            "base: opencua\nprompts: {system: {file: ../else.txt}}",
            "'../else.txt' is not in the folder of the profile's file",
        ),
        (
            "base: opencua\nprompts: {system: {file: /dev/zero}}",
            "'/dev/zero' is not in the folder of the profile's file",
        ),
        ("base: opencua\nprompts: {system: {file: link.txt}}", "'link.txt' is not in the folder of the profile's file"),
        ('base: opencua\nprompts: {system: {file: "a\\0b"}}', "is not a file name"),
        ("base: opencua\nprompts: {system: {file: fifo}}", "fifo: is not a regular file"),
        ("base: opencua\nprompts: {system: {file: .}}", ": cannot be read: Is a directory"),
        ("base: opencua\nprompts: {system: {file: large.txt}}", "large.txt: is larger than 200000 bytes"),
        (
            "base: claude\nname: mine\nsampling: {max_tokens: null}",
            "sampling.max_tokens is missing: Anthropic's API needs",
        ),
        ("base: openai-cua\nname: mine\nhistory: {images: 1}", "history.images must be at least 2: the first"),
        (
            "base: openai-cua\nname: mine\nhistory: {steps: 4}",
            "history.steps is not used with the protocol responses_computer",
        ),
        (
            "base: claude\nname: mine\nprompts: {step: '{action}'}",
            "prompts.step is not used with the protocol anthropic_computer",
        ),
        (WHOLE + "max_seconds: 0", "max_seconds: must be more than 0, got 0"),
        (WHOLE + "max_steps: yes", "max_steps: must be a whole number, got True"),
        (WHOLE + "history: {images: yes}", "history.images: must be a whole number, got True"),
        (WHOLE + "sampling: {temperature: on}", "sampling.temperature: must be a number, got True"),
        (WHOLE + "sampling: {extra: {seed: 1}}", "sampling.extra: may not set seed, which the run sets itself"),
        (WHOLE + "sampling: {extra: {a: .nan}}", "sampling.extra: holds something that JSON does not have"),
        (WHOLE + "sampling: {extra: {a: !!binary aGk=}}", "sampling.extra: holds something that JSON does not have"),
        (WHOLE + 'sampling: {extra: {a: "\\ud800"}}', "sampling.extra: holds something that JSON does not have"),
        (
            WHOLE + "sampling: {extra: {a: {API-Key: sk}}}",
            "sampling.extra: may not hold API-Key, which run.json would store",
        ),
    ],
)
def test_a_wrong_file_is_one_sentence_with_file_and_field(tmp_path: Path, text: str, says: str) -> None:
    folder = tmp_path / "profiles"
    folder.mkdir()
    (tmp_path / "else.txt").write_text("a secret")
    (folder / "link.txt").symlink_to("../else.txt")
    (folder / "large.txt").write_text("x" * 200_001)
    os.mkfifo(folder / "fifo")
    file = written(folder, text)
    with pytest.raises(UserError) as caught:
        read_profile(file)

    sentence = str(caught.value)
    assert sentence.startswith(f"{folder}")
    assert says in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("base", "given", "part", "is_then"),
    [
        ("opencua", "places: {span: screen}", "places", {"span": "screen", "rounding": "share_down"}),
        ("opencua", "places: {span: grid, grid: [9, 9]}", "places", {"span": "grid", "grid": [9, 9]}),
        ("qwen3-vl", "places: {grid: [9, 9]}", "places", {"span": "grid", "grid": [9, 9]}),
        ("qwen3-vl", "pictures: {size: [9, 9]}", "pictures", {"format": "png", "size": [9, 9], "resize": None}),
        ("claude", "pictures: {resize: {factor: 2}}", "pictures", {"format": "png", "size": None}),
        ("claude", "pictures: {format: unchanged}", "pictures", {"format": "unchanged", "size": None}),
        ("claude", "pictures: {format: jpeg, quality: 9}", "pictures", {"quality": 9, "size": [1280, 720]}),
    ],
)
def test_what_goes_with_another_span_or_size_of_the_base_is_replaced(
    tmp_path: Path, base: str, given: str, part: str, is_then: dict[str, Any]
) -> None:
    profile = read_profile(written(tmp_path, f"base: {base}\nname: mine\n{given}"))

    found = profile.model_dump(mode="json")[part]
    assert {name: found[name] for name in is_then} == is_then


def test_files_with_aliases_that_are_small_are_read(tmp_path: Path) -> None:
    text = f"{WHOLE}pictures: {{format: png, resize: &size {{factor: 28}}}}\n".replace("places: {span: picture}", "")
    profile = read_profile(written(tmp_path, f"{text}places: {{span: resized, resize: *size}}"))

    assert profile.places.resize is not None
    assert profile.places.resize == profile.pictures.resize


def test_the_examples_of_the_docs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "how-to" / "agents.md").read_text()
    tool, based, whole = (
        read_profile(written(tmp_path, block)) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    )

    assert (tool.computer_tool, tool.protocol) == ("computer", "responses_computer")
    assert (based.name, based.prompts.task) == ("opencua-32b", BUILT_IN["opencua"].prompts.task)
    said = set(whole.model_dump(exclude_unset=True))
    assert said == set(Profile.model_fields) - {"computer_tool", "user_calls"}, "the example shows every other field"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none.yaml: cannot be read: No such file"):
        read_profile(tmp_path / "none.yaml")


def test_a_stored_profile_may_say_what_is_not_used() -> None:
    stored = BUILT_IN["claude"].model_dump(mode="json")
    stored["history"]["steps"] = 3

    assert checked_profile(stored, "profile").history.steps == 3


def test_of_a_base_with_another_protocol_what_is_not_used_is_no_mistake(tmp_path: Path) -> None:
    text = (
        "base: qwen3-vl\nname: mine\nprotocol: anthropic_computer\ncomputer_tool: computer_20250124\n"
        "prompts: {task: '{instruction}'}\nsampling: {max_tokens: 100}\n"
    )

    assert read_profile(written(tmp_path, text)).api == "messages"
