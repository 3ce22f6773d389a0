"""What the locks bring is on the licences page and in the bills of materials, and nothing else is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cyclonedx", reason="installed from requirements-dev.lock")

from tests.conftest import REPOSITORY
from tools.supply_chain.facts import read_facts
from tools.supply_chain.licences import Licence, read_licence
from tools.supply_chain.licences_page import PAGE, render
from tools.supply_chain.locks import LOCKS, read_lock, rows


def test_the_page_is_as_the_locks_want_it() -> None:
    assert (REPOSITORY / PAGE).read_text("utf-8") == render(REPOSITORY), "python scripts/supply.py licences --write"


def test_each_locked_version_was_read() -> None:
    assert {(row.name, row.version) for row in rows(REPOSITORY)} == set(read_facts())


@pytest.mark.parametrize(
    ("expression", "stated", "classifiers", "licence"),
    [
        ("MIT OR Apache-2.0", "", [], Licence("MIT OR Apache-2.0")),
        ("", "Apache 2.0", ["License :: OSI Approved :: Apache Software License"], Licence("Apache-2.0")),
        ("", "", ["License :: OSI Approved :: MIT License"], Licence("MIT")),
        ("", "BSD", [], Licence(says="License BSD")),
        (
            "",
            "MIT",
            ["License :: OSI Approved :: ISC License (ISCL)"],
            Licence(says="License MIT; classifier ISC License (ISCL)"),
        ),
        ("", "", [], Licence(says="the metadata says nothing")),
    ],
)
def test_a_licence_is_told_only_where_its_metadata_agrees(
    expression: str, stated: str, classifiers: list[str], licence: Licence
) -> None:
    assert read_licence(expression=expression, field=stated, classifiers=classifiers) == licence


def test_a_folder_that_cannot_be_written_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "scripts/supply.py", "sbom", "--output", str(tmp_path / "file")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "file cannot be written to: File exists" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_bills_of_materials_hold_every_locked_version_with_its_hashes(tmp_path: Path) -> None:
    command = [sys.executable, "scripts/supply.py", "sbom", "--output", str(tmp_path), "--json"]
    written = json.loads(subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout)

    assert set(written) == set(LOCKS.values())
    for lock, path in written.items():
        components = json.loads(Path(path).read_text("utf-8"))["components"]
        locked = {(one.name, one.version) for one in read_lock(REPOSITORY / lock)}
        assert {(one["name"], one["version"]) for one in components} == locked
        hashed = {one["name"] for one in components if one.get("hashes") or one.get("externalReferences")}
        assert hashed == {name for name, _ in locked}
