"""What this project adds to desktop-env's evaluators, by what a guest's files say."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pptx
import pptx.util
import pytest

from rollout_tasks.environments.osworld import desktop_env_import


def guest(preferences: bytes | None) -> Any:
    """An environment whose guest has this file of Chrome's settings, and no other."""
    path = "/home/user/.config/google-chrome/Default/Preferences"
    return SimpleNamespace(controller=SimpleNamespace(get_file=lambda asked: preferences if asked == path else None))


def settings(**sections: Any) -> bytes:
    return json.dumps(sections).encode()


def asked(getter: str, preferences: bytes | None) -> Any:
    return getattr(desktop_env_import.desktop_env().getters, f"get_{getter}")(guest(preferences), {})


@pytest.mark.parametrize(
    ("preferences", "said"),
    [
        (settings(profile={"default_content_setting_values": {"has_migrated_local_network_access": True}}), "false"),
        (settings(profile={"default_content_setting_values": {"cookies": 4}}), "true"),
        (settings(profile={"default_content_setting_values": {"cookies": 4, "has_migrated_x": True}}), "true"),
        (settings(profile={"default_content_setting_values": {}}), "false"),
        (settings(profile={}), "false"),
        (settings(profile=[1], other={}), "false"),
        (settings(profile={"default_content_setting_values": [["has_migrated_x"]]}), "false"),
        (b"[]", "false"),
        (b"broken", "false"),
        (b"[" * 100_000, "false"),
        (b"\xff", "false"),
        (None, "false"),
    ],
)
def test_data_is_deleted_on_exit_when_the_user_has_chosen_something(preferences: bytes | None, said: str) -> None:
    assert asked("data_delete_automacally", preferences) == said


@pytest.mark.parametrize(
    ("theme", "said"),
    [
        ({}, "system"),
        ({"color_scheme": 2}, "dark"),
        ({"color_scheme": 2, "color_scheme2": 1}, "light"),
        ({"color_scheme2": 0}, "system"),
        ({"color_scheme2": 7}, "system"),
        ({"color_scheme2": [2]}, "system"),
    ],
)
def test_the_color_scheme_is_the_one_that_the_user_chose(theme: dict[str, Any], said: str) -> None:
    assert asked("chrome_color_scheme", settings(browser={"theme": theme})) == said


@pytest.mark.parametrize(
    ("written", "expected", "score"),
    [
        ("play-and-exit=1\n", 1, 1.0),
        ("play-and-exit=1\n", "1", 1.0),
        ("#play-and-exit=0\n", 1, 0.0),
        ("#play-and-exit=1\n", 0, 1.0),
        ("", 0, 1.0),
        ("play-and-exit=0\nplay-and-exit = 1\n", 1, 1.0),
        ("no-play-and-exit=1\n", 1, 0.0),
    ],
)
def test_vlc_quits_after_playing_when_its_settings_say_so(
    tmp_path: Path, written: str, expected: Any, score: float
) -> None:
    (tmp_path / "vlcrc").write_text(written)
    metric = desktop_env_import.desktop_env().metrics.check_play_and_exit

    assert metric(str(tmp_path / "vlcrc"), {"expected_play_and_exit": expected}) == score


def test_without_settings_vlc_is_not_known_to_quit() -> None:
    assert desktop_env_import.desktop_env().metrics.check_play_and_exit(None, {"expected_play_and_exit": 1}) == 0.0


def deck(path: Path, *runs: str, sizes: int = 18) -> str:
    """Slides with one paragraph, cut into these runs."""
    slides = pptx.Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[6])
    paragraph = slide.shapes.add_textbox(0, 0, 1000000, 1000000).text_frame.paragraphs[0]
    for text in runs:
        run = paragraph.add_run()
        run.text = text
        run.font.size = pptx.util.Pt(sizes)
    slides.save(str(path))
    return str(path)


@pytest.mark.parametrize(
    ("ours", "options", "score"),
    [
        (["Online Shopping"], {"examine_run_count": False}, 1),
        (["Online Shopping"], {"examine_run_count": True}, 0),
        (["Online Shopping"], {}, 0),
        (["Online ", "Shoppin", "g"], {}, 1),
        (["Online Shoppings"], {"examine_run_count": False}, 0),
    ],
)
def test_runs_are_counted_unless_the_task_says_otherwise(
    tmp_path: Path, ours: list[str], options: dict[str, Any], score: int
) -> None:
    compare = desktop_env_import.desktop_env().metrics.compare_pptx_files
    gold = deck(tmp_path / "gold.pptx", "Online ", "Shoppin", "g")

    assert compare(deck(tmp_path / "ours.pptx", *ours), gold, enable_debug=False, **options) == score


def test_uncounted_runs_are_compared_all_the_same(tmp_path: Path) -> None:
    compare = desktop_env_import.desktop_env().metrics.compare_pptx_files
    files = deck(tmp_path / "a.pptx", "text", sizes=20), deck(tmp_path / "b.pptx", "te", "xt", sizes=18)

    assert compare(*files, examine_run_count=False) == 0
    assert compare(*files, examine_run_count=False, examine_font_size=False) == 1
    assert len(pptx.Presentation(files[1]).slides[0].shapes[0].text_frame.paragraphs[0].runs) == 2


@pytest.mark.parametrize(
    ("written", "expected", "options", "score"),
    [
        ('{"a": 1, "b": {"c": 2, "d": 3}}', '{"b": {"c": 2}}', {"containment_ok": True}, 1.0),
        ('{"a": 1}', '{"a": 2}', {"containment_ok": True}, 0.0),
        ('{"a": [1, 2]}', '{"a": [1]}', {"containment_ok": True}, 0.0),
        ('{"a": 1}', '{"a": 1, "b": 1}', {"containment_ok": True}, 0.0),
        ("// mine\n{'a': 1}\n", "{'a': 1}\n", {"containment_ok": True}, 1.0),
        ("[" * 100_000 + "{'a': 1}", "{'a': 1}", {"containment_ok": True}, 1.0),
        ('{"a": 1, "b": 1}', '{"a": 1}', {"containment_ok": False}, 0.0),
        ('{"a": 1, "b": 1}', '{"a": 1}', {}, 0.0),
        ('{"a": 1}', '{"a": 1}', {}, 1.0),
    ],
)
def test_settings_may_be_among_others_where_the_task_says_so(
    tmp_path: Path, written: str, expected: str, options: dict[str, Any], score: float
) -> None:
    compare = desktop_env_import.desktop_env().metrics.compare_config
    (tmp_path / "settings.json").write_text(written)

    assert compare(str(tmp_path / "settings.json"), {"expected": expected}, **options) == score
    assert compare(None, {"expected": expected}, **options) == 0


class _Reader:
    """What reads text off pictures, in the place of easyocr's."""

    def __init__(self, *_languages: Any, **_options: Any) -> None:
        pass

    def readtext(self, path: str) -> list[tuple[None, str]]:
        return [(None, word) for word in Path(path).read_text(encoding="ascii").split()]


class _WithoutModels(_Reader):
    def __init__(self, *_languages: Any, **_options: Any) -> None:
        raise OSError("its models cannot be fetched")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder with programs: one that has none but `file`."""
    (folder := tmp_path / "programs").mkdir()
    (folder / "file").write_text("#!/bin/sh\necho $1: PNG image data\n")
    (folder / "file").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def _text_in(monkeypatch: pytest.MonkeyPatch, reader: type[_Reader], picture: Path | None, text: str = "ls") -> float:
    compare = desktop_env_import.desktop_env().metrics.compare_image_text
    docs = importlib.import_module("desktop_env.evaluators.metrics.docs")
    monkeypatch.setattr(docs.easyocr, "Reader", reader)
    return float(compare(str(picture) if picture else None, {"type": "text", "text": text}))


@pytest.mark.usefixtures("path")
def test_a_reader_that_does_not_start_is_no_wrong_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ls.png").write_text("user@desktop: ls", encoding="ascii")

    with pytest.raises(RuntimeError, match="easyocr does not start: its models cannot be fetched"):
        _text_in(monkeypatch, _WithoutModels, tmp_path / "ls.png")


def test_a_picture_is_not_wrong_where_its_format_cannot_be_asked_for(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ls.png").write_text("user@desktop: ls", encoding="ascii")
    (path / "file").unlink()

    with pytest.raises(RuntimeError, match="the program file, which the metric runs, is not installed"):
        _text_in(monkeypatch, _Reader, tmp_path / "ls.png")
    assert _text_in(monkeypatch, _Reader, None) == 0


@pytest.mark.usefixtures("path")
def test_a_picture_is_wrong_without_the_text_or_unreadable_or_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ls.png").write_text("user@desktop: ls", encoding="ascii")
    (tmp_path / "broken.png").write_bytes(b"\xff")

    assert _text_in(monkeypatch, _Reader, tmp_path / "ls.png") == 1
    assert _text_in(monkeypatch, _Reader, tmp_path / "ls.png", "pwd") == 0
    assert _text_in(monkeypatch, _Reader, tmp_path / "broken.png") == 0
    assert _text_in(monkeypatch, _WithoutModels, None) == 0
