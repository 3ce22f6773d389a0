"""Profiles of one's own: read from a file, and everything that may be wrong with it in one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rollout_tasks.agents.profiles.built_in import BUILT_IN
from rollout_tasks.agents.profiles.profile import PackagedText, Profile
from rollout_tasks.agents.profiles.profile_file import read_profile
from rollout_tasks.errors import UserError

WHOLE = """
name: mine
version: 3
protocol: ui_tars
prompts: {task: "Do: {instruction}"}
places: {span: picture}
"""


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
            "base: must be a built-in profile: claude, openai-cua, opencua, qwen2.5-vl, qwen3-vl, uitars-1.5, uitars-2",
        ),
        ("base: [1]", "base: must be a built-in profile"),
        ("base: opencua\nprompts: {system: {file: no.txt}}", "no.txt: cannot be read: No such file"),
        ("base: opencua\nprompts: {system: {file: 3}}", "prompts.system: file must be a file's name"),
        ("base: opencua\nprompts: {system: {module: 'a b', name: x}}", "prompts.system"),
    ],
)
def test_a_wrong_file_is_one_sentence_with_file_and_field(tmp_path: Path, text: str, says: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(UserError) as caught:
        read_profile(file)

    sentence = str(caught.value)
    assert sentence.startswith(f"{tmp_path}/")
    assert says in sentence
    assert "\n" not in sentence


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
