"""What was recorded is replayed byte for byte, with all servers stopped; what was not is said; what was changed is noticed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.web.environment import WebEnvironment
from rollout_tasks.environments.web.record_files import RecordDamagedError
from rollout_tasks.environments.web.recording import Kind, Recording
from rollout_tasks.errors import UserError
from tests.hostile.random_replies.answers import Answer
from tests.integration.environments.web.conftest import HostileSite, Opened, StandInSearch, Web
from tests.integration.environments.web.hostile_site import PAGES
from tests.integration.environments.web.test_web_visits import Reader

NOT_RECORDED = "it was not recorded, and this run only replays what was (--web-cache replay)"


def episode(web: Web, site: HostileSite) -> list[object]:
    return [
        web.search("tide museum", "second"),
        web.visit(f"{site.url}/museum", f"{site.url}/missing"),
        web.visit(f"{site.url}/slow"),
        web.visit(f"{site.url}/pdf"),
        web.call("find", url=f"{site.url}/museum", text="marsh"),
        web.call("scroll", url=f"{site.url}/long"),
        web.call("scroll", url=f"{site.url}/long"),
    ]


@pytest.mark.usefixtures("cells")
def test_a_replay_is_the_same_without_any_server(
    web: Opened, site: HostileSite, search: StandInSearch, tmp_path: Path
) -> None:
    options = {"cache_folder": tmp_path / "record", "visit_seconds": 2}
    recorded = episode(web(Reader(), cache="record", **options), site)
    files = {path: path.read_bytes() for path in (tmp_path / "record").rglob("*") if path.is_file()}
    site.close()
    search.close()
    model = Reader(reply="something else")

    replay = web(model, cache="replay", **options)

    assert episode(replay, site) == recorded
    assert model.asked == []
    assert replay.visit(f"{site.url}/declared").response == f"Page '{site.url}/declared': {NOT_RECORDED}."
    assert replay.search("third").response == f"Search 'third': {NOT_RECORDED}."
    assert "something else" in replay.visit(f"{site.url}/museum", goal="another goal").response
    assert {path: path.read_bytes() for path in (tmp_path / "record").rglob("*") if path.is_file()} == files


@pytest.mark.usefixtures("cells")
def test_a_record_goes_on_and_its_first_answers_stay(
    web: Opened, site: HostileSite, search: StandInSearch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"cache": "record", "cache_folder": tmp_path / "record"}
    first = web(**options).visit(f"{site.url}/plain")
    monkeypatch.setitem(PAGES, "plain", lambda _: Answer(b"changed", "text/plain"))

    assert web(**options).visit(f"{site.url}/plain") == first
    assert site.pages_asked() == ["/plain"]
    assert "12 euros" in web(**options).visit(f"{site.url}/museum").response


def test_of_two_answers_at_once_one_is_recorded_for_both(tmp_path: Path) -> None:
    both = threading.Barrier(2)
    answers: list[object] = []

    def ask(mine: int) -> int:
        both.wait(30)
        return mine

    def record(mine: int) -> None:
        answers.append(Recording("record", tmp_path).answer("page", {"url": "a"}, lambda: ask(mine)))

    threads = [threading.Thread(target=record, args=[number]) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert answers[0] == answers[1] == Recording("replay", tmp_path).answer("page", {"url": "a"}, lambda: 3)
    assert list(tmp_path.rglob(".*")) == []


def _recorded(folder: Path) -> tuple[Path, Path]:
    """An entry and its object."""
    Recording("record", folder).answer("page", {"url": "a"}, lambda: {"url": "a", "title": "", "text": "said"})
    [entry], [content] = folder.glob("entries/*/*/*"), folder.glob("objects/*/*")
    return entry, content


def _to_a_link(path: Path) -> None:
    moved = path.with_name(f"{path.name}.moved")
    path.rename(moved)
    path.symlink_to(moved)


def _to_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _to_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _to_a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("")


DAMAGES: dict[str, Callable[[Path, Path], object]] = {
    "content changed": lambda _entry, content: content.write_text('{"text": "other"}'),
    "content missing": lambda _entry, content: content.unlink(),
    "content too large": lambda _entry, content: os.truncate(content, 17 << 20),
    "no JSON": lambda entry, _content: entry.write_text("{"),
    "deep": lambda entry, _content: entry.write_text("[" * 60_000),
    "another question": lambda entry, _content: entry.write_text(
        json.dumps({**json.loads(entry.read_text()), "question": {"url": "b"}})
    ),
    "path for a hash": lambda entry, _content: entry.write_text(
        json.dumps({**json.loads(entry.read_text()), "sha256": "../../../etc/passwd"})
    ),
    "entry is a link": lambda entry, _content: _to_a_link(entry),
    "entry is a folder": lambda entry, _content: _to_a_folder(entry),
    "entry is a pipe": lambda entry, _content: _to_a_pipe(entry),
    "content is a link": lambda _entry, content: _to_a_link(content),
    "content is a folder": lambda _entry, content: _to_a_folder(content),
    "folder of the entry is a link": lambda entry, _content: _to_a_link(entry.parent),
    "folder of the kind is a link": lambda entry, _content: _to_a_link(entry.parents[1]),
    "folder of entries is a link": lambda entry, _content: _to_a_link(entry.parents[2]),
    "folder of entries is a file": lambda entry, _content: _to_a_file(entry.parents[2]),
    "folder of the content is a link": lambda _entry, content: _to_a_link(content.parent),
    "folder of objects is a link": lambda _entry, content: _to_a_link(content.parents[1]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_is_an_error_that_names_the_file(damage: str, tmp_path: Path) -> None:
    entry, content = _recorded(tmp_path)
    DAMAGES[damage](entry, content)

    with pytest.raises(RecordDamagedError, match=str(tmp_path)):
        Recording("replay", tmp_path).answer("page", {"url": "a"}, lambda: "new")


@pytest.mark.parametrize("linked", ["entries", "entries/page", "objects"])
def test_nothing_is_recorded_behind_a_link(linked: str, tmp_path: Path) -> None:
    record, outside = tmp_path / "record", tmp_path / "outside"
    outside.mkdir()
    (record / linked).parent.mkdir(parents=True)
    (record / linked).symlink_to(outside)

    with pytest.raises(RecordDamagedError, match=str(record)):
        Recording("record", record).answer("page", {"url": "a"}, lambda: "said")

    assert list(outside.iterdir()) == []


def test_a_records_folder_may_itself_be_a_link(tmp_path: Path) -> None:
    _recorded(tmp_path / "record")
    (tmp_path / "link").symlink_to(tmp_path / "record")

    assert Recording("replay", tmp_path / "link").answer("page", {"url": "a"}, lambda: "new")["text"] == "said"


def test_a_replay_needs_its_folder(tmp_path: Path) -> None:
    config = RunConfig.model_validate({"web": {"cache": "replay", "cache_folder": tmp_path / "none"}})

    with pytest.raises(UserError, match="--web-cache-dir: there is no folder "):
        WebEnvironment.check_item(config, Item(id="1", question="?"))


ODD = "a\ud800b\x1b[2J\u202e\0"
SHOWN = "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[2J" + 2 * "\N{REPLACEMENT CHARACTER}"


def _replayed(web: Opened, folder: Path, kind: Kind, question: dict[str, str], answer: object) -> Web:
    """A replay of a record that a stranger made: with one answer, written as no honest one is."""
    Recording("record", folder).answer(kind, question, lambda: "honest")
    [entry] = folder.glob(f"entries/{kind}/*/*")
    content = json.dumps(answer)
    digest = hashlib.sha256(content.encode()).hexdigest()
    entry.write_text(json.dumps({"kind": kind, "question": question, "sha256": digest}))
    place = folder / "objects" / digest[:2] / digest
    place.parent.mkdir(exist_ok=True)
    place.write_text(content)
    return web(cache="replay", cache_folder=folder)


def test_a_strangers_recorded_page_is_cleaned_as_a_new_one(web: Opened, tmp_path: Path) -> None:
    url = "https://a.example/\u202e"
    page = {"url": url, "title": f"{ODD}\n2. other" + "t" * 1_000, "text": f"{ODD}\n" + "x" * 1_000_000}
    replay = _replayed(web, tmp_path, "page", {"url": "https://a.example/"}, page)

    said = replay.call("scroll", url="https://a.example/").response

    heading, text = said.split(":\n", 1)
    assert heading.startswith(f"https://a.example/%E2%80%AE ({SHOWN} 2. othertt")
    assert heading.endswith("), 500,000 characters, from 0 to 8,000")
    assert len(heading) < 400
    assert text.startswith(f"{SHOWN}\nxx")


def test_a_strangers_recorded_results_are_cleaned_as_new_ones(web: Opened, tmp_path: Path) -> None:
    rows = [[f"{ODD}\n2. other", "https://a.example/", f"{ODD}\n" + "x" * 10_000]]
    replay = _replayed(web, tmp_path, "search", {"service": "searxng", "query": "q"}, {"results": rows})

    first, title, url, snippet = replay.search("q").response.split("\n")

    assert (first, title, url) == ("Results for 'q':", f"1. {SHOWN} 2. other", "   https://a.example/")
    assert snippet == f"   {SHOWN} " + "x" * (1_000 - len(SHOWN) - 1)


def test_a_strangers_recorded_summary_is_cleaned_as_a_new_one(web: Opened, tmp_path: Path) -> None:
    question = {"text": hashlib.sha256(b"said").hexdigest(), "goal": "who founded it"}
    _replayed(web, tmp_path, "summary", question, ODD + "x" * 100_000)
    page = {"url": "https://a.example/", "title": "", "text": "said"}
    Recording("record", tmp_path).answer("page", {"url": "https://a.example/"}, lambda: page)

    said = web(Reader(), cache="replay", cache_folder=tmp_path).visit("https://a.example/").response

    assert said == "https://a.example/, 4 characters:\n" + SHOWN + "x" * (20_000 - len(SHOWN))


def test_what_was_recorded_before_is_shown_as_it_was(web: Opened, tmp_path: Path) -> None:
    title = "t" * 299 + " "  # cut at a blank
    page = {
        "url": "https://a.example/%zz?q=[1]#part",
        "title": title,
        "text": "one\n\n\ttwo \N{REPLACEMENT CHARACTER} ",
    }
    replay = _replayed(web, tmp_path, "page", {"url": "https://a.example/"}, page)

    said = replay.call("scroll", url="https://a.example/").response

    assert said == f"{page['url']} ({title}), 12 characters, from 0 to 12, its end:\n{page['text']}"


def test_a_recorded_address_is_shown_without_its_password(web: Opened, tmp_path: Path) -> None:
    page = {"url": "https://ann:secret@a.example/x", "title": "", "text": "said"}
    replay = _replayed(web, tmp_path, "page", {"url": "https://a.example/"}, page)

    assert replay.visit("https://a.example/").response == "https://a.example/x, 4 characters:\nsaid"
