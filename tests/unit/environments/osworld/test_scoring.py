"""Which failures of an evaluation are the agent's: desktop-env's own getters, asking a guest's real server."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs

import docx
import pytest
import requests
from docx.shared import RGBColor

from rollout_tasks.config import DesktopConfig
from rollout_tasks.environments.osworld import desktop_env_import, vm_client

if not desktop_env_import.is_installed():
    pytest.skip("desktop-env is not installed", allow_module_level=True)

from rollout_tasks.environments.osworld.attached_desktop import Desktop
from rollout_tasks.environments.osworld.scoring import score

BROKEN = 500
"""The guest's server has a file, but cannot give it."""
SILENT = 0
"""It does not answer."""
FILE = "/home/user/file"


class Guest(BaseHTTPRequestHandler):
    """Has a few files, and prints the same for every command."""

    files: ClassVar[dict[str, bytes | int]] = {}
    """A file's content, or the status that is answered in place of it."""
    printed: ClassVar[str] = FILE
    released: ClassVar[threading.Event]

    def do_GET(self) -> None:
        self._answer(200, b"Linux")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/execute":
            printed = "Linux" if b"platform" in body else self.printed
            self._answer(200, json.dumps({"status": "success", "output": printed, "error": ""}).encode())
            return
        content = self.files.get(parse_qs(body.decode())["file_path"][0], 404)
        if content == SILENT:
            self.released.wait(10)
        elif isinstance(content, int):
            self._answer(content, b"{}")
        else:
            self._answer(200, content)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass


@dataclass
class Evaluation:
    """Scores an evaluator on the guest."""

    desktop: Desktop

    def __call__(self, func: Any, result: Any, expected: Any = None, **more: Any) -> float:
        evaluator = {"func": func, "result": result, **({"expected": expected} if expected else {}), **more}
        task = {"evaluator": evaluator}
        self.desktop._set_evaluator_info(task)
        return score(self.desktop, task)


@pytest.fixture
def evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Evaluation]:
    monkeypatch.setattr(vm_client, "REFUSED_AGAIN_SECONDS", 0.01)
    monkeypatch.setitem(vm_client.ANSWER_SECONDS, "/file", 0.3)
    Guest.files, Guest.printed, Guest.released = {}, FILE, threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Guest) as closed:
        nobody = closed.server_address[1]
    with ThreadingHTTPServer(("127.0.0.1", 0), Guest) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        ports = {"control": server.server_address[1], "chromium": nobody, "vnc": nobody, "vlc": nobody}
        desktop = Desktop("127.0.0.1", ports, DesktopConfig(), tmp_path)
        desktop.cache_dir = str(tmp_path)
        yield Evaluation(desktop)
        desktop.close()
        Guest.released.set()
        server.shutdown()


def archive(**members: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name, member in members.items():
            file.writestr(name, member)
    return content.getvalue()


RELS = "http://schemas.openxmlformats.org/package/2006/relationships"


def slides(relations: str, slide: bytes = b"<s/>") -> bytes:
    links = f'<Relationships xmlns="{RELS}">{relations}</Relationships>'.encode()
    return archive(**{"ppt/slides/slide1.xml": slide, "ppt/slides/_rels/slide1.xml.rels": links})


BACKGROUND = (
    b'<s xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
    b' xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
    b' xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships">'
    b'<p:bgPr><a:blip r:embed="r1"/></p:bgPr></s>'
)
IN_SLIDE = {"ppt_file_path": FILE, "slide_index": 0, "dest": "there"}
READERS: Mapping[str, Mapping[str, Any]] = {
    "audio_in_slide": IN_SLIDE,
    "background_image_in_slide": IN_SLIDE,
    "bookmarks": {},
    "content_from_vm_file": {"path": FILE, "file_type": "xlsx", "file_content": "last_row"},
    "gimp_config_file": {"file_name": "gimprc", "dest": "there"},
    "vlc_config": {"dest": "there"},
    "vm_file": {"path": FILE, "dest": "there"},
    "vscode_config": {"vscode_extension_command": "x", "path": FILE, "dest": "there"},
}
"""Getters that read one file of the guest, and how tasks call them."""
DAMAGED: Mapping[str, bytes] = {
    "nothing": b"",
    "bytes": bytes(range(256)) * 4,
    "text": "größer\n".encode(),
    "a list": b"[1]",
    "a number": b"7",
    "cut off": archive(name=b"content" * 99)[:-40],
    "another archive": archive(name=b"content"),
    "a table without sheets": archive(**{"xl/workbook.xml": b"<x/>", "[Content_Types].xml": b"<x/>"}),
    "broken slides": archive(**{"ppt/slides/slide1.xml": b"<", "ppt/slides/_rels/slide1.xml.rels": b"<"}),
    "a link to elsewhere": slides('<Relationship Id="r1" Type="image audio" Target="https://e.org/a"/>', BACKGROUND),
    "a link to nothing": slides('<Relationship Id="r1" Type="image audio" Target="../gone"/>', BACKGROUND),
    "a link without target": slides('<Relationship Id="r1" Type="image audio"/>', BACKGROUND),
}


def result(name: str) -> dict[str, Any]:
    return {"type": name, **READERS[name]}


RULE = {"type": "rule", "rules": {"expected": "x"}}


@pytest.mark.parametrize("name", READERS)
def test_a_missing_result_scores_nothing(name: str, evaluation: Evaluation) -> None:
    assert evaluation("exact_match", result(name), RULE) == 0


@pytest.mark.parametrize("content", DAMAGED)
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_result_scores_nothing(name: str, content: str, evaluation: Evaluation) -> None:
    Guest.files[FILE] = DAMAGED[content]
    assert evaluation("exact_match", result(name), RULE) == 0


@pytest.mark.parametrize("name", ["vlc_playing_info", "chrome_appearance_mode_ui"])
def test_a_program_that_was_closed_tells_nothing(name: str, evaluation: Evaluation) -> None:
    assert evaluation("exact_match", {"type": name, "dest": "there"}, RULE) == 0


def test_a_file_that_another_result_should_have_brought_is_missing(evaluation: Evaluation) -> None:
    Guest.files["/one"] = b"1"
    several = {"type": "vm_file", "path": ["/one", "/two"], "dest": ["one", "two"], "multi": True}
    results = [several, {"type": "cache_file", "path": "two"}]
    same = [{"type": "rule", "rules": {"expected": str(Path(evaluation.desktop.cache_dir) / "one")}}, RULE]
    assert evaluation(["exact_match"] * 2, results, same) == 0


def test_another_result_counts_where_either_is_enough(evaluation: Evaluation) -> None:
    Guest.printed = "x"
    results = [result("audio_in_slide"), {"type": "vm_command_line", "command": "x"}]
    assert evaluation(["exact_match"] * 2, results, [RULE, RULE], conj="or") == 1


@pytest.mark.parametrize("printed", ["@as []", "", "['a'", "None", "[[]]", "(" * 10_000])
def test_favourites_that_are_no_list_are_not_the_wanted_ones(printed: str, evaluation: Evaluation) -> None:
    Guest.printed = printed
    wanted = {"type": "rule", "rules": {"expected": ["x"]}}
    assert evaluation("check_gnome_favorite_apps", {"type": "vm_command_line", "command": "x"}, wanted) == 0


def words(*colours: RGBColor | None) -> bytes:
    document = docx.Document()
    cells = document.add_table(1, len(colours)).rows[0].cells
    for cell, colour in zip(cells, colours, strict=True):
        cell.paragraphs[0].add_run("apple").font.color.rgb = colour
    content = io.BytesIO()
    document.save(content)
    return content.getvalue()


RED = RGBColor(0xFF, 0, 0)
COLOURED = {
    "func": "evaluate_colored_words_in_tables",
    "result": {"type": "vm_file", "path": FILE, "dest": "words.docx"},
    "expected": {"type": "vm_file", "path": "/home/user/gold", "dest": "gold.docx"},
}


def test_a_result_on_which_a_metric_fails_scores_nothing_where_the_reference_is_taken(evaluation: Evaluation) -> None:
    """desktop-env's metric reckons with the colour of each word, and a word need not have any."""
    Guest.files = {FILE: words(RED, None), "/home/user/gold": words(RED, RED)}

    assert evaluation(**COLOURED) == 0

    Guest.files[FILE] = words(RED, RED)
    assert evaluation(**COLOURED) == 1


def test_a_reference_on_which_the_metric_fails_too_is_not_the_agents(evaluation: Evaluation) -> None:
    Guest.files = {FILE: words(RED, None), "/home/user/gold": words(None, None)}

    with pytest.raises(TypeError):
        evaluation(**COLOURED)


@pytest.mark.parametrize("trouble", [BROKEN, SILENT])
@pytest.mark.parametrize("name", ["audio_in_slide", "background_image_in_slide", "content_from_vm_file", "vlc_config"])
def test_a_server_that_gives_no_file_says_nothing_about_the_agent(
    name: str, trouble: int, evaluation: Evaluation
) -> None:
    Guest.files[FILE] = trouble
    with pytest.raises(Exception, match=r".") as failed:
        evaluation("exact_match", result(name), RULE)
    assert not isinstance(failed.value, AssertionError)


@pytest.mark.parametrize("side", ["result", "expected"])
def test_a_file_that_does_not_come_in_time_is_not_missing(side: str, evaluation: Evaluation) -> None:
    Guest.files |= {FILE: SILENT, "/there": b"x"}
    there = {"type": "vm_file", "path": "/there", "dest": "here"}
    sides = (result("vm_file"), there) if side == "result" else (there, result("vm_file"))
    with pytest.raises(requests.ReadTimeout):
        evaluation("compare_text_file", *sides)


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"type": "cache_file", "path": "nowhere"}, AssertionError),
        ({"type": "cloud_file", "path": "http://127.0.0.1:9/x", "dest": "x"}, requests.ConnectionError),
        (result("audio_in_slide"), AttributeError),
    ],
)
def test_what_should_have_been_is_not_the_agents(
    wanted: dict[str, Any], error: type[Exception], evaluation: Evaluation
) -> None:
    Guest.files["/there"] = b"x"
    with pytest.raises(error):
        evaluation("exact_match", {"type": "vm_file", "path": "/there", "dest": "here"}, wanted)


@pytest.mark.parametrize(
    "lacking",
    [
        {"type": "content_from_vm_file", "path": FILE},
        {"type": "content_from_vm_file", "path": FILE, "file_type": "odt", "file_content": "last_row"},
        {"type": "vlc_config"},
        {"type": "cache_file", "path": "nowhere"},
    ],
)
def test_a_task_that_is_wrong_is_not_the_agents(lacking: dict[str, Any], evaluation: Evaluation) -> None:
    Guest.files[FILE] = b"x"
    with pytest.raises(Exception, match=r"lacks|not supported|^assert|^$"):
        evaluation("exact_match", lacking, RULE)
