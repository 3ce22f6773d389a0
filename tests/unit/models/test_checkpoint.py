"""What a checkpoint's headers say: which ones can be loaded, and which are of another model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.models.serving.checkpoint import difference, folder_of, notes, read_checkpoint, same_weights
from tests.checkpoints import write_checkpoint, write_tensors

ONE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def test_what_is_whole_is_read(tmp_path: Path) -> None:
    found = read_checkpoint(write_checkpoint(tmp_path / "a"))

    assert found.architectures == ("Qwen2ForCausalLM",)
    assert found.tensors == {"a.weight": ("F32", (2, 3)), "b.weight": ("BF16", (4,))}


def test_one_in_several_files_is_that_of_one_file(tmp_path: Path) -> None:
    one = read_checkpoint(write_checkpoint(tmp_path / "one"))
    folder = write_checkpoint(tmp_path / "two")
    (folder / ONE).unlink()
    write_tensors(folder / "x.safetensors", {"a.weight": ("F32", [2, 3])})
    write_tensors(folder / "y.safetensors", {"b.weight": ("BF16", [4])})
    files = {"a.weight": "x.safetensors", "b.weight": "y.safetensors"}
    (folder / INDEX).write_text(json.dumps({"weight_map": files}))

    two = read_checkpoint(folder)

    assert difference(one, two) == ""
    assert same_weights(one, two)
    write_tensors(folder / "y.safetensors", {"b.weight": ("BF16", [4])}, 2)
    assert not same_weights(one, read_checkpoint(folder))


def header(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        content = (folder / ONE).read_bytes()
        length = int.from_bytes(content[:8], "little")
        document = json.loads(content[8 : 8 + length])
        text = json.dumps(change(document) or document).encode()
        (folder / ONE).write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])

    return spoil


def content(change: Callable[[bytes], bytes], name: str = ONE) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes())) and None


def pipe(name: str) -> Callable[[Path], None]:
    """A file that nobody ever writes to: whoever opened it would wait."""

    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return spoil


def index(document: Any) -> Callable[[Path], None]:
    return lambda folder: (folder / INDEX).write_text(json.dumps(document)) and None


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda folder: (folder / ONE).unlink(), "has no .safetensors file"),
        (lambda folder: (folder / "config.json").unlink(), "config.json: cannot be read: No such file or directory"),
        (pipe("config.json"), "config.json: is not a regular file"),
        (pipe(ONE), f"{ONE}: is not a regular file"),
        (content(lambda _: b"{", "config.json"), "config.json: is no JSON: "),
        (content(lambda _: b"[" * 100_000, "config.json"), "config.json: is no JSON: "),
        (content(lambda _: b"[]", "config.json"), "config.json: is no JSON object"),
        (
            content(lambda _: b'{"architectures": 3}', "config.json"),
            "config.json: architectures must be a list of names",
        ),
        (content(lambda _: b""), f"{ONE}: is cut off, or no safetensors file"),
        (content(lambda whole: whole[:4]), f"{ONE}: is cut off, or no safetensors file"),
        (content(lambda whole: whole[:40]), f"{ONE}: is cut off, or no safetensors file"),
        (content(lambda whole: whole[:-1]), "has 31 bytes of tensors, its header says 32: it is cut off"),
        (content(lambda whole: whole + b"x"), "has 33 bytes of tensors, its header says 32"),
        (content(lambda whole: b"\xff" * len(whole)), f"{ONE}: is cut off, or no safetensors file"),
        (content(lambda whole: whole[:8] + b"?" * (len(whole) - 8)), f"{ONE}: its header cannot be read: "),
        (header(lambda _: [1]), f"{ONE}: its header is no object"),
        (
            header(lambda all_: all_["a.weight"].pop("shape") and None),
            "'a.weight' has no known dtype, shape and data_offsets",
        ),
        (header(lambda all_: all_["a.weight"].update(dtype="F33")), "'a.weight' has no known dtype, shape and"),
        (header(lambda all_: all_["a.weight"].update(dtype=[])), "'a.weight' has no known dtype, shape and"),
        (header(lambda all_: all_["a.weight"].update(shape=7)), "'a.weight' has no known dtype, shape and"),
        (header(lambda all_: all_["a.weight"].update(shape=[2, "3"])), "'a.weight' has a shape or place that is none"),
        (header(lambda all_: all_["a.weight"].update(shape=[2, -3])), "'a.weight' has a shape or place that is none"),
        (
            header(lambda all_: all_["a.weight"].update(shape=[2, 3, 1.0])),
            "'a.weight' has a shape or place that is none",
        ),
        (header(lambda all_: all_["a.weight"].update(shape=[3, 3])), "'a.weight' does not have the size of its shape"),
        (
            header(lambda all_: all_["b.weight"].update(data_offsets=[20, 28])),
            "'b.weight' does not follow the one before it",
        ),
        (header(lambda all_: {"a": 1, "b": all_["b.weight"]}), "'a' has no known dtype, shape and data_offsets"),
        (index({}), "weight_map must say in which file each tensor is"),
        (
            index({"weight_map": {"a.weight": "../a.safetensors"}}),
            "'../a.safetensors' is not the name of a .safetensors",
        ),
        (index({"weight_map": {"a.weight": "model.bin"}}), "'model.bin' is not the name of a .safetensors"),
        (index({"weight_map": {"a.weight": 3}}), "'3' is not the name of a .safetensors"),
        (index({"weight_map": {"a.weight": "lost.safetensors"}}), "lost.safetensors: cannot be read: No such file"),
        (index({"weight_map": {"a.weight": ONE, "c.weight": ONE}}), "names the tensor 'c.weight', which is in no file"),
    ],
)
def test_what_cannot_be_loaded_is_a_sentence(tmp_path: Path, spoil: Callable[[Path], Any], sentence: str) -> None:
    folder = write_checkpoint(tmp_path / "step-1")
    spoil(folder)

    with pytest.raises(ValueError) as refused:  # noqa: PT011 (the sentence is compared)
        read_checkpoint(folder)

    assert sentence in str(refused.value)
    assert str(folder) in str(refused.value)


@pytest.mark.parametrize(
    ("config", "tensors", "said"),
    [
        ({"architectures": ["Foo"]}, None, "is for Foo, not for Qwen2ForCausalLM"),
        ({}, {"a.weight": ("F32", [2, 3])}, "lacks the tensor 'b.weight'"),
        ({}, {"c": ("F32", [1])}, "lacks the tensor 'a.weight' and 1 others"),
        ({}, {"a.weight": ("F32", [2, 3]), "b.weight": ("BF16", [4]), "c": ("F32", [1])}, "has a tensor more, 'c'"),
        (
            {},
            {"a.weight": ("F32", [3, 2]), "b.weight": ("BF16", [4])},
            "as F32 of shape [3, 2], not F32 of shape [2, 3]",
        ),
        ({}, {"a.weight": ("I32", [2, 3]), "b.weight": ("BF16", [4])}, "as I32 of shape [2, 3], not F32 of shape"),
    ],
)
def test_another_model_is_told_from_other_weights(
    tmp_path: Path, config: dict[str, Any], tensors: dict[str, tuple[str, list[int]]] | None, said: str
) -> None:
    old = read_checkpoint(write_checkpoint(tmp_path / "old"))
    folder = write_checkpoint(tmp_path / "new", 2, config=config)
    if tensors:
        write_tensors(folder / ONE, tensors)

    assert said in difference(old, read_checkpoint(folder))


def test_what_vllm_reads_in_the_same_way_is_the_same_model(tmp_path: Path) -> None:
    tied = {"tie_word_embeddings": True}
    old = read_checkpoint(write_checkpoint(tmp_path / "old", config=tied))
    folder = write_checkpoint(tmp_path / "new", config=tied)
    (folder / ONE).unlink()
    write_tensors(folder / "x.safetensors", {"a.weight": ("BF16", [2, 3])})
    write_tensors(folder / "y.safetensors", {"b.weight": ("BF16", [4]), "lm_head.weight": ("F32", [1])})

    assert difference(old, read_checkpoint(folder)) == difference(read_checkpoint(folder), old) == ""


def test_what_a_server_does_not_load_anew_is_named(tmp_path: Path) -> None:
    old = read_checkpoint(write_checkpoint(tmp_path / "old", config={"rope_theta": 1, "transformers_version": "4"}))
    folder = write_checkpoint(tmp_path / "new", config={"rope_theta": 2, "transformers_version": "5"})
    (folder / "tokenizer.json").write_text("{}")

    assert notes(old, old) == ""
    assert notes(old, read_checkpoint(folder)) == (
        "until it is started again, it has the earlier rope_theta in config.json, tokenizer.json"
    )


def test_the_files_of_a_name_at_the_hub_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert folder_of("Qwen/Tiny") is None
    snapshot = write_checkpoint(tmp_path / "models--Qwen--Tiny" / "snapshots" / "abc")
    (tmp_path / "models--Qwen--Tiny" / "refs").mkdir()
    (tmp_path / "models--Qwen--Tiny" / "refs" / "main").write_text("abc")

    assert folder_of("Qwen/Tiny") == snapshot
    assert folder_of(str(snapshot)) == snapshot
