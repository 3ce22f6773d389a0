"""Planting defects: what the rules change, what a draw is, and that a copy is judged and the tree left alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray", reason="installed from requirements-dev.lock")

from tests.conftest import REPOSITORY
from tools.mutation.command import Row, draw_mutants, every_candidate, explanation, read_explained
from tools.mutation.judging import BaselineFailed, copy_of
from tools.mutation.lua_rules import lua_candidates
from tools.mutation.modules import MODULES
from tools.mutation.mutant import Mutant
from tools.mutation.python_rules import python_candidates

PYTHON = '''"""A module."""

from dataclasses import dataclass
from typing import Protocol

log = print


class Kind:
    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True)
class Shape:
    sides: int | None = None


class Talks(Protocol):
    def talk(self) -> int:
        return 1 + 1


def area(width: int | None, *, height: int = 3) -> int | None:
    if width is None:
        log("nothing to do", flush=True)
        raise ValueError("no width")
    try:
        sizes = [width, height]
        options = {"a": 1, "b": sum(sizes, start=0)}
    except (KeyError, OSError):
        return None
    kind = Kind.GOOD if width in sizes else Kind.BAD
    del sizes[0]
    return width * height + options["b"] if kind and height > 2 else 0
'''

LUA = """-- A script: 1 + 1 == 2
local key = KEYS[1] .. ':items'
if redis.call('EXISTS', key) == 1 and ARGV[1] ~= '' then -- not > 5
  redis.call('HSET', key, 'state', 'done', 'count', ARGV[2] + 1)
  note(key)
  redis.call('DEL', KEYS[1] .. ':other')
end
return math.max(1, -1)
"""


def changes(candidates: object) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for candidate in candidates:  # type: ignore[attr-defined]
        mutant = candidate.mutant()
        if mutant is not None:
            found.setdefault(mutant.kind, set()).add(f"{mutant.before} -> {mutant.after}")
    return found


def test_python_is_changed_in_one_small_way_at_a_time() -> None:
    found = changes(python_candidates("m.py", PYTHON))

    assert 'raise ValueError("no width") -> pass' in found["statement dropped"]
    assert "del sizes[0] -> pass" in found["statement dropped"]
    assert "except (KeyError, OSError): -> except (ZeroDivisionError, OSError):" in found["exception let through"]
    assert "sizes = [width, height] -> sizes = [ height]" in found["element dropped"]
    assert (
        'options = {"a": 1, "b": sum(sizes, start=0)} -> options = {"a": 1, "b": sum(sizes, )}'
        in found["argument dropped"]
    )
    assert (
        'options = {"a": 1, "b": sum(sizes, start=0)} -> options = { "b": sum(sizes, start=0)}'
        in found["entry dropped"]
    )
    assert any(change.endswith("Kind.BAD if width in sizes else Kind.BAD") for change in found["member swapped"])
    assert "if width is None: -> if width is not None:" in found["ReplaceComparisonOperator_Is_IsNot"]
    assert any("height >= 2" in change for change in found["ReplaceComparisonOperator_Gt_GtE"])
    assert any("width / height" in change for change in found["ReplaceBinaryOperator_Mul_Div"])


def test_what_promises_nothing_is_left_alone() -> None:
    lines = {candidate.place[0] for candidate in python_candidates("m.py", PYTHON) if candidate.mutant()}

    text = PYTHON.splitlines()
    assert not [text[line - 1] for line in lines if "log(" in text[line - 1] or "@dataclass" in text[line - 1]]
    assert not [text[line - 1] for line in lines if "1 + 1" in text[line - 1]]
    annotated = changes(python_candidates("m.py", "x: int | None = f()\n"))
    assert not any(
        "None" in change.split(" -> ")[1] for kind in annotated.values() for change in kind if "int & " in change
    )


def test_lua_is_changed_by_its_tokens_and_not_in_comments() -> None:
    found = changes(lua_candidates("s.lua", LUA))

    assert "note(key) -> " in found["call dropped"]
    assert any(change.endswith("'count', ARGV[2] )") for change in found["increment dropped"])
    assert any(change.endswith("redis.call('HSET', key, 'count', ARGV[2] + 1)") for change in found["field dropped"])
    assert any(
        "not (redis.call('EXISTS', key) == 1 and ARGV[1] ~= '') then" in change for change in found["branch negated"]
    )
    assert any("redis.call('DEL', KEYS[1] .. ':items')" in change for change in found["key swapped"])
    assert any("math.min(1, -1)" in change for change in found["math.max changed"])
    assert not any(
        "+1" in change.replace(" ", "").split("->")[-1] and "max" in change for change in found.get("- changed", ())
    )
    assert not any(change.startswith("-- A script") for kind in found.values() for change in kind)


def test_a_draw_is_the_same_for_the_same_seed_and_spread_over_lines() -> None:
    candidates = list(python_candidates("m.py", PYTHON))

    first, again, other = (draw_mutants(candidates, 8, seed) for seed in (1, 1, 2))

    assert [mutant.id for mutant in first] == [mutant.id for mutant in again]
    assert [mutant.id for mutant in first] != [mutant.id for mutant in other]
    assert len({mutant.place[0] for mutant in first}) == 8
    everything = draw_mutants(candidates, 10_000, 1)
    assert len({mutant.id for mutant in everything}) == len(everything) > 20


def test_every_module_has_files_that_can_be_changed_and_tests_that_exist() -> None:
    for name, module in MODULES.items():
        assert module.paths(REPOSITORY), name
        for test in (test for group in module.tests for test in group):
            assert (REPOSITORY / test.removeprefix("--ignore=")).exists(), test
    assert every_candidate(MODULES["vm_pool/lua"], REPOSITORY)


def test_an_explanation_speaks_for_its_line_and_change() -> None:
    for entry in read_explained():
        assert (REPOSITORY / entry["file"]).is_file()
        assert entry["why"].endswith(".")
    places = [(entry["file"], entry["before"], entry.get("after")) for entry in read_explained()]
    assert [place for place in places if places.count(place) > 1 or (place[2] and (*place[:2], None) in places)] == []
    entries = [
        {"file": "f.py", "before": "a", "after": "b", "why": "one."},
        {"file": "f.py", "before": "c", "why": "all."},
    ]

    def why(before: str, after: str, file: str = "f.py") -> str | None:
        return explanation(Row("m", "1", file, 1, "k", before, after, "survived", "", 0.0), entries)

    assert (why("a", "b"), why("a", "x"), why("c", "x"), why("c", "x", "g.py")) == ("one.", None, "all.", None)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "double.py").write_text(
        "def double(x):\n    return 2 * x\n\n\ndef wait():\n    while False:\n        pass\n"
    )
    (root / "test_double.py").write_text(
        "from double import double, wait\n\n\ndef test_it():\n    wait()\n    assert double(3) == 6\n"
    )
    (root / ".gitignore").write_text("ignored\n")
    (root / "ignored").write_text("not copied")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


def planted(root: Path, before: str, after: str) -> Mutant:
    text = (root / "double.py").read_text()
    return Mutant("double.py", (1, 0), "test", before, after, text.replace(before, after))


@pytest.mark.slow
def test_a_defect_is_judged_in_a_copy(project: Path) -> None:
    sound = (project / "double.py").read_text()
    groups = [["test_double.py"]]
    with copy_of(project) as copy:
        assert not (copy.folder / "ignored").exists()
        limits = copy.measure(groups)
        noticed = copy.judge(planted(project, "2 * x", "3 * x"), groups, limits)
        survived = copy.judge(planted(project, "2 * x", "x * 2"), groups, limits)
        stuck = copy.judge(planted(project, "while False", "while True"), groups, [3.0])
        assert (copy.folder / "double.py").read_text() == sound
        folder = copy.folder

    assert (noticed.outcome, noticed.by) == ("noticed", "test_double.py::test_it")
    assert (survived.outcome, survived.by) == ("survived", "")
    assert (stuck.outcome, stuck.by) == ("noticed", "timeout")
    assert (project / "double.py").read_text() == sound
    assert not folder.exists()


def test_tests_that_fail_by_themselves_judge_nothing(project: Path) -> None:
    (project / "test_double.py").write_text("def test_it():\n    assert 1 == 2\n")

    with (
        copy_of(project) as copy,
        pytest.raises(BaselineFailed, match=r"without a defect test_double\.py::test_it fails"),
    ):
        copy.measure([["test_double.py"]])


def test_rows_are_kept_as_lines_of_json(tmp_path: Path) -> None:
    from dataclasses import asdict

    from tools.mutation.command import _read_rows

    row = Row("m", "1", "f.py", 3, "k", "a", "b", "noticed", "t", 1.0)
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(asdict(row)) + "\n" + '{"module": "cut off')

    assert _read_rows(file) == [row]
    assert _read_rows(tmp_path / "none") == _read_rows(None) == []
