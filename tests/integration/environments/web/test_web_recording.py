"""What was recorded is replayed byte for byte, with all servers stopped; what was not is said; what was changed is noticed."""

from __future__ import annotations

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
from rollout_tasks.environments.web.recording import Recording
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
