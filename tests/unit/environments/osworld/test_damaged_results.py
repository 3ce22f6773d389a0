"""A damaged file as a result scores 0 by every metric of the visible tasks, whatever error desktop-env's metric raises."""

from __future__ import annotations

import io
import json
import sqlite3
import wave
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx
import pypdf
import pytest
from PIL import Image

from rollout_tasks.environments.osworld.scoring import _watched

metrics = pytest.importorskip("desktop_env.evaluators.metrics")


def picture(kind: str) -> bytes:
    return saved(lambda file: Image.effect_noise((120, 120), 80).convert("RGB").save(file, kind))


def saved(save: Any) -> bytes:
    file = io.BytesIO()
    save(file)
    return file.getvalue()


def deck() -> bytes:
    made = pptx.Presentation()
    made.slides.add_slide(made.slide_layouts[5]).shapes.title.text = "A title"
    return saved(made.save)


def text() -> bytes:
    made = docx.Document()
    made.add_paragraph("Some words")
    return saved(made.save)


def sheet() -> bytes:
    made = openpyxl.Workbook()
    made.active["A1"] = 3
    return saved(made.save)


def page() -> bytes:
    made = pypdf.PdfWriter()
    made.add_blank_page(100, 100)
    return saved(made.write)


def archive() -> bytes:
    def save(file: io.BytesIO) -> None:
        with zipfile.ZipFile(file, "w") as made:
            made.writestr("a.txt", "a" * 1000)

    return saved(save)


def sound() -> bytes:
    def save(file: io.BytesIO) -> None:
        with wave.open(file, "wb") as made:
            made.setparams((1, 2, 8000, 0, "NONE", ""))
            made.writeframes(b"ab" * 4000)

    return saved(save)


def database() -> bytes:
    with sqlite3.connect(":memory:") as made:
        made.execute("create table a (b)")
    return made.serialize()


SOUND = {
    "pptx": deck,
    "docx": text,
    "xlsx": sheet,
    "pdf": page,
    "zip": archive,
    "wav": sound,
    "db": database,
    "sqlite": database,
    "json": lambda: b'{"a": "b"}',
    **{kind: lambda kind=kind: picture(kind) for kind in ("png", "gif", "tiff")},
    **dict.fromkeys(("jpg", "jpeg"), lambda: picture("jpeg")),
}
DAMAGED = {
    "empty": lambda _sound: b"",
    "other text": lambda _sound: b"not such a file\n",
    "the first half": lambda sound: sound[: len(sound) // 2],
    "any bytes": lambda _sound: bytes(range(256)) * 20,
    "a picture": lambda _sound: picture("png"),
}


def ending(name: object) -> str:
    return Path(str(name)).suffix.lower().removeprefix(".")


def listed(value: Any, length: int) -> list[Any]:
    return value if isinstance(value, list) else [value] * length


def comparisons(shared_data: Path) -> Iterator[tuple[str, str, Any, dict[str, Any]]]:
    """Yields metric, ending of the result, reference (an ending, rules, or None), and options of the visible tasks."""
    folder = shared_data / "osworld"
    for domain, tasks in json.loads((folder / "test_all.json").read_text()).items():
        for task in tasks:
            evaluator = json.loads((folder / "examples" / domain / f"{task}.json").read_text())["evaluator"]
            names = evaluator["func"] if isinstance(evaluator["func"], list) else [evaluator["func"]]
            parts = (listed(evaluator.get(part), len(names)) for part in ("result", "expected", "options"))
            for name, result, expected, options in zip(names, *parts, strict=True):
                if not result or result["type"] != "vm_file" or result.get("multi") or not hasattr(metrics, name):
                    continue
                if expected and expected["type"] in {"cloud_file", "vm_file"}:
                    reference = ending(expected.get("dest"))
                else:
                    reference = (expected or {}).get("rules")
                yield name, ending(result["dest"]), reference, options or {}


def test_it_scores_nothing(shared_data: Path, tmp_path: Path) -> None:
    written: dict[str, bytes] = {}

    def file(name: str, content: bytes) -> str:
        (tmp_path / name).write_bytes(content)
        return str(tmp_path / name)

    raised, tried = [], set()
    for name, kind, reference, options in comparisons(shared_data):
        key = json.dumps([name, kind, reference, options])
        if key in tried or kind not in SOUND or (isinstance(reference, str) and reference not in SOUND):
            continue
        metric = _watched(None, {}, name, getattr(metrics, name))
        sound = written.setdefault(kind, SOUND[kind]())
        if isinstance(reference, str):
            arguments = [file(f"gold.{reference}", written.setdefault(reference, SOUND[reference]()))]
        else:
            arguments = [] if reference is None else [reference]
        try:
            metric(file(f"sound.{kind}", sound), *arguments, **options)
        except Exception:  # noqa: BLE001, S112 - it wants more of its files than these have: whatever it raises says nothing here
            continue
        tried.add(key)
        for damage, damaged in DAMAGED.items():
            try:
                metric(file(f"damaged.{kind}", damaged(sound)), *arguments, **options)
            except Exception as error:  # noqa: BLE001 - which, is the question
                raised.append(f"{name} of {damage} as {kind}: {type(error).__name__}: {error}")

    assert raised == []
    assert len(tried) > 60


def test_a_failure_that_does_not_come_again_is_not_the_results(tmp_path: Path) -> None:
    file = tmp_path / "a.docx"
    file.write_bytes(text())
    calls = []

    def metric(*files: str) -> float:
        calls.append(files)
        if len(calls) == 1:
            raise RuntimeError("can't start new thread")
        return 1.0

    with pytest.raises(RuntimeError, match="new thread"):
        _watched(None, {}, "compare_docx_files", metric)(str(file), str(file))


def test_a_long_text_is_not_taken_for_a_file() -> None:
    with pytest.raises(KeyError, match="expected"):
        _watched(None, {}, "exact_match", metrics.exact_match)("abc" * 100, {})
