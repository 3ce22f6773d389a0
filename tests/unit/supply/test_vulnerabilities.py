"""Known vulnerabilities: what the index tells is judged by the accepted list, and an index that tells nothing fails nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pip_audit", reason="installed from requirements-dev.lock")
pytest.importorskip("cryptography", reason="installed from requirements-dev.lock")

from rollout_tasks.errors import UserError
from tests.conftest import REPOSITORY
from tests.unit.supply.package_index import Answer, closed_port, index_at, knows, package_index, vulnerability
from tools.supply_chain.locks import INSTALLER_LOCK, LOCKS, read_lock, rows
from tools.supply_chain.vulnerabilities import (
    Accepted,
    Audit,
    NotCheckedError,
    Vulnerability,
    ask,
    judge,
    read_accepted,
)

SLOW_READER = Vulnerability("reader", "1.0", "PYSEC-2026-1", ("CVE-2026-1", "GHSA-x"), (), "It hangs.")
ENTRY = '[[accepted]]\nid = "CVE-2026-1"\npackage = "reader"\nreason = "It reads our own files only."\n'


# --- the accepted list


def accepted_file(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "accepted.toml"
    file.write_text(text)
    return file


def test_the_accepted_list_of_this_repository_can_be_read_and_is_of_locked_packages():
    names = {row.name for row in rows(REPOSITORY)}
    assert {entry.package for entry in read_accepted()} <= names
    assert all(len(entry.reason.split()) > 5 for entry in read_accepted())


def test_entries_are_read_whatever_the_package_is_called_there(tmp_path: Path):
    file = accepted_file(tmp_path, ENTRY.replace('"reader"', '"Re_ader"'))
    assert read_accepted(file) == [Accepted("CVE-2026-1", "re-ader", "It reads our own files only.")]
    assert read_accepted(accepted_file(tmp_path, "")) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (ENTRY.replace('reason = "It reads our own files only."\n', ""), r"entry 1 \(CVE-2026-1\) has no reason"),
        (ENTRY.replace("It reads our own files only.", "  "), r"entry 1 \(CVE-2026-1\) has no reason"),
        (ENTRY.replace('package = "reader"\n', ""), r"entry 1 \(CVE-2026-1\) has no package"),
        (ENTRY.replace('id = "CVE-2026-1"\n', ""), r"entry 1 \(without id\) has no id"),
        (ENTRY.replace('"CVE-2026-1"', "20261"), "has no id"),
        (ENTRY + 'until = "2027"\n', "has until, but may only have id, package, reason"),
        (ENTRY + ENTRY, r"entry 2 \(CVE-2026-1\) is there twice for reader"),
        (ENTRY + "[[accepted\n", "accepted.toml: "),
    ],
)
def test_an_entry_that_is_not_whole_is_refused(tmp_path: Path, text: str, sentence: str):
    with pytest.raises(UserError, match=sentence):
        read_accepted(accepted_file(tmp_path, text))


@pytest.mark.parametrize("identity", ["PYSEC-2026-1", "CVE-2026-1", "GHSA-x"])
def test_what_is_accepted_by_any_of_its_names_is_let_pass(identity: str):
    audit = Audit([SLOW_READER], {"reader"})
    assert not judge(audit, [Accepted(identity, "reader", "why")], ["reader"])


@pytest.mark.parametrize(
    "entry", [None, Accepted("CVE-2026-2", "reader", "why"), Accepted("CVE-2026-1", "writer", "why")]
)
def test_what_no_entry_speaks_of_is_refused(entry: Accepted | None):
    judgement = judge(Audit([SLOW_READER], {"reader", "writer"}), [entry] if entry else [], ["reader", "writer"])
    assert judgement.refused == [SLOW_READER]
    assert judgement.stale == ([entry] if entry else [])


@pytest.mark.parametrize(
    ("audit", "locked", "stale"),
    [
        (Audit([], {"reader"}), ["reader"], True),  # fixed
        (Audit([], set()), [], True),  # not locked any more
        (Audit([], set()), ["reader"], False),  # the index was not asked
        (Audit([], {"writer"}, {"reader": "not found"}), ["reader", "writer"], False),  # it told nothing of this one
    ],
)
def test_an_entry_is_stale_only_where_that_is_known(audit: Audit, locked: list[str], stale: bool):
    entry = Accepted("CVE-2026-1", "reader", "why")
    judgement = judge(audit, [entry], locked)
    assert judgement.stale == ([entry] if stale else [])
    assert bool(judgement) is stale


# --- asking the index


def asked(answer: Answer, folder: Path, pins: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> Audit:
    with package_index(answer, folder) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return ask(pins)


def test_each_version_is_asked_about_also_several_of_one_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    known = {
        "reader 1.0": [vulnerability("PYSEC-2026-1", "CVE-2026-1", fixed_in=("1.1", "2.0"))],
        "reader 3.0": [vulnerability("PYSEC-2026-3")],
        "writer 2.0": [],
    }
    pins = [("writer", "2.0"), ("reader", "1.0"), ("reader", "2.0"), ("reader", "3.0"), ("ours", "1.0")]
    audit = asked(knows(known, unheard_of=("ours",)), tmp_path, [*pins, ("a", "1")], monkeypatch)
    assert audit.found == [
        Vulnerability("reader", "1.0", "PYSEC-2026-1", ("CVE-2026-1",), ("1.1", "2.0"), "It can be made to hang."),
        Vulnerability("reader", "3.0", "PYSEC-2026-3", (), (), "It can be made to hang."),
    ]
    assert audit.checked_packages == {"a", "reader", "writer"}
    assert list(audit.unknown) == ["ours"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda _name, _version: (404, b""), "tells nothing of single versions"),
        (lambda _name, _version: (503, b""), "cannot be asked"),
        (lambda _name, _version: (200, b"<html>Please log in</html>"), "cannot be asked"),
    ],
    ids=["has no such thing", "is down", "is a login page"],
)
def test_an_index_that_does_not_answer_is_not_taken_for_a_good_word(
    answer: Answer, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(NotCheckedError, match=why):
        asked(answer, tmp_path, [("reader", "1.0")], monkeypatch)


# --- the command


def supply(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/supply.py", *arguments]
    return subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | environment, capture_output=True, text=True, timeout=120
    )


def test_without_the_index_the_command_says_so_and_goes_on(tmp_path: Path):
    done = supply("audit", environment=index_at(closed_port(), tmp_path))
    assert done.returncode == 0, done.stderr
    assert "known vulnerabilities were not checked: the package index cannot be asked" in done.stderr


@pytest.mark.slow  # test.sh asks the real index about all of them each time
def test_all_locked_versions_are_asked_about_and_judged(tmp_path: Path):
    locked = {
        (one.name, one.version) for file in (*LOCKS.values(), INSTALLER_LOCK) for one in read_lock(REPOSITORY / file)
    }
    versions = dict(locked)
    entries = read_accepted()
    known = {f"{entry.package} {versions[entry.package]}": [vulnerability(entry.id)] for entry in entries}
    seen: set[tuple[str, str]] = set()
    told = knows(known)

    def answer(name: str, version: str) -> tuple[int, bytes]:
        seen.add((name, version))
        return told(name, version)

    with package_index(answer, tmp_path) as environment:
        good = supply("audit", environment=environment)
        assert good.returncode == 0, good.stdout + good.stderr
        assert seen == locked

        known[f"celery {versions['celery']}"] = [vulnerability("PYSEC-2026-9", fixed_in=("99.1",))]
        known = {key: value for key, value in known.items() if not key.startswith(f"{entries[0].package} ")}
        told = knows(known)
        bad = supply("audit", "--json", environment=environment | {"XDG_CACHE_HOME": str(tmp_path / "other-cache")})
    judgement = json.loads(bad.stdout)
    assert bad.returncode == 1
    assert [(one["package"], one["id"], one["fixed_in"]) for one in judgement["refused"]] == [
        ("celery", "PYSEC-2026-9", ["99.1"])
    ]
    assert [one["id"] for one in judgement["stale"]] == [entries[0].id]
