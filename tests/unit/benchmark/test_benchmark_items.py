"""Loading benchmarks: every format, every mistake with its place, and the real files."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmark.errors import BenchmarkError
from benchmark.items import MAX_ID_BYTES, Item, check_id, load_items
from benchmark.sources import _is_file_name


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_tree(folder: Path, lists: dict[str, Any], tasks: dict[str, Any]) -> Path:
    for name, task in tasks.items():
        write(folder, f"examples/{name}.json", json.dumps(task))
    return write(folder, "test_all.json", json.dumps(lists))


ENTRIES = [{"question": "1 + 1?", "answer": 2}, {"id": "b/ü", "question": "Sky?", "answer": None, "domain": "colour"}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", "\n".join(json.dumps(entry) for entry in ENTRIES)),
        ("crlf.JSONL", "\r\n".join(json.dumps(entry) for entry in ENTRIES) + "\r\n\r\n"),
        ("bom.jsonl", b"\xef\xbb\xbf" + "\n".join(json.dumps(entry) for entry in ENTRIES).encode()),
        ("list.json", json.dumps(ENTRIES)),
        ("items.json", json.dumps({"items": ENTRIES, "name": "x"}, indent=2)),
    ],
)
def test_every_format_gives_the_same_items(tmp_path: Path, name: str, content: str | bytes) -> None:
    benchmark = load_items(write(tmp_path, name, content))

    assert list(benchmark) == [Item("item_1", "1 + 1?", "2"), Item("b/ü", "Sky?", "", {"domain": "colour"})]
    assert [item.domain for item in benchmark] == [None, "colour"]
    assert len(benchmark) == 2
    assert benchmark.name == Path(name).stem


def test_each_item_has_its_place(tmp_path: Path) -> None:
    text = write(tmp_path, "a.jsonl", "\n".join(["", *(json.dumps(entry) for entry in ENTRIES)]))
    tree = write_tree(
        tmp_path, {"os": ["t1"]}, {"os/t1": {"id": "t1", "instruction": "Go.", "evaluator": {"func": "infeasible"}}}
    )

    assert load_items(text).places == {"item_2": f"{text}, line 2", "b/ü": f"{text}, line 3"}
    assert load_items(tree).places == {"t1": str(tmp_path / "examples" / "os" / "t1.json")}


def test_a_single_object_is_one_item(tmp_path: Path) -> None:
    assert list(load_items(write(tmp_path, "one.json", '{"question": "Why?"}'))) == [Item("item_1", "Why?")]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"question": "q", "id": 7}, Item("7", "q")),
        ({"question": "q", "id": None}, Item("item_1", "q")),
        ({"question": "q", "answer": True}, Item("item_1", "q", "true")),
        ({"question": "q", "answer": 1.5}, Item("item_1", "q", "1.5")),
        ({"question": "q", "answer": ["ä", 1]}, Item("item_1", "q", '["ä", 1]')),
        ({"question": "q", "metadata": None, "env_config": None}, Item("item_1", "q")),
        ({"question": "q", "metadata": {"a": 1, "b": 1}, "b": 2}, Item("item_1", "q", "", {"a": 1, "b": 2})),
        ({"question": "q", "env_config": {"x": 1}}, Item("item_1", "q", "", {}, {"x": 1})),
        ({"question": "q", "metadata": {"env_config": {"x": 1}, "y": 2}}, Item("item_1", "q", "", {"y": 2}, {"x": 1})),
        (
            {"question": "q", "env_config": {"x": 1}, "metadata": {"env_config": {"x": 2}}},
            Item("item_1", "q", "", {}, {"x": 1}),
        ),
        ({"question": "\U0001f600", "config": [1]}, Item("item_1", "\U0001f600", "", {"config": [1]})),
    ],
)
def test_fields(tmp_path: Path, entry: dict[str, Any], expected: Item) -> None:
    assert load_items(write(tmp_path, "a.jsonl", json.dumps(entry))).items == (expected,)


GOOD = '{"question": "q"}'


def nested(levels: int) -> str:
    """An item with so many nested lists and objects."""
    return f'{{"id": "deep", "question": "q", "config": {"[" * (levels - 1)}{"]" * (levels - 1)}}}'


WRONG_FILES = [
    ("a.jsonl", f'{GOOD}\n{{"question": ', r"a\.jsonl, line 2: is broken JSON at column 14: .+"),
    ("a.jsonl", f"{GOOD}\n\nnull", r"a\.jsonl, line 3: must be an object, got null"),
    ("a.jsonl", f"{GOOD}\n[{GOOD}]", r"a\.jsonl, line 2: must be an object, got a list"),
    ("a.jsonl", GOOD.encode() + b'\n{"question": "\xff"}', r"a\.jsonl, line 2: is not UTF-8 at byte 14"),
    ("a.jsonl", GOOD.encode("utf-16"), r"a\.jsonl, line 1: is not UTF-8 at byte 0"),
    ("a.jsonl", '{"question": "q", "answer": NaN}', r"a\.jsonl, line 1: holds NaN, which is not JSON"),
    ("a.jsonl", '{"question": "q", "x": -Infinity}', r"a\.jsonl, line 1: holds -Infinity, .+"),
    ("a.jsonl", '{"question": "q", "x": 1e999}', r"a\.jsonl, line 1: holds 1e999, a number too large"),
    ("a.jsonl", '{"question": "q", "x": ' + "9" * 5000 + "}", r"a\.jsonl, line 1: .*4300.*"),
    ("a.jsonl", '{"question": "\\ud800"}', r"a\.jsonl, line 1: holds half a surrogate pair, \\ud800"),
    ("a.jsonl", '{"x": ' + "[" * 100_000, r"a\.jsonl, line 1: is JSON nested too deeply"),
    ("a.jsonl", f"{GOOD}\n{nested(65)}", r"a\.jsonl, line 2: has lists and objects nested more than 64 deep"),
    ("a.json", f"[{GOOD}, {nested(500)}]", r"a\.json, entry 2: has lists and objects nested more than 64 deep"),
    ("a.json", nested(500), r"a\.json, entry 1: has lists and objects nested more than 64 deep"),
    ("a.jsonl", "", r"a\.jsonl: is empty"),
    ("a.jsonl", "\n \n", r"a\.jsonl: is empty"),
    ("a.json", " \n", r"a\.json: is empty"),
    ("a.json", "[]", r"a\.json: its list of items is empty"),
    ("a.json", '{"items": []}', r"a\.json: its list of items is empty"),
    ("a.json", '{"items": 3}', r"a\.json: items must be a list, got a number"),
    ("a.json", '"text"', r"a\.json: must hold a list, an object with items, or one object, got text"),
    ("a.json", "[\n1,\n2", r"a\.json: is broken JSON at line 3 column 2: .+"),
    ("a.json", f"[{GOOD}, 5]", r"a\.json, entry 2: must be an object, got a number"),
    ("a.json", '{"items": [{"answer": 1}]}', r"a\.json, entry 1: question is missing"),
    ("a.jsonl", f'{GOOD}\n{{"instruction": "q"}}', r"a\.jsonl, line 2: question is missing"),
    ("a.jsonl", '{"question": null}', r"a\.jsonl, line 1: question is missing"),
    ("a.jsonl", '{"question": " \\t"}', r"a\.jsonl, line 1: question is empty"),
    ("a.jsonl", '{"question": ["q"]}', r'a\.jsonl, line 1: question must be text, got \["q"\]'),
    ("a.jsonl", '{"question": "q", "metadata": "m"}', r'a\.jsonl, line 1: metadata must be an object, got "m"'),
    ("a.jsonl", '{"question": "q", "env_config": [1]}', r"a\.jsonl, line 1: env_config must be an object, got \[1\]"),
    (
        "a.jsonl",
        '{"question": "q", "metadata": {"env_config": 1}}',
        r"a\.jsonl, line 1: env_config must be an object, got 1",
    ),
    ("a.jsonl", '{"question": "q", "id": 1.5}', r"a\.jsonl, line 1: id must be text or a whole number, got 1\.5"),
    ("a.jsonl", '{"question": "q", "id": true}', r"a\.jsonl, line 1: id must be text or a whole number, got true"),
    ("a.jsonl", '{"question": "q", "id": ""}', r'a\.jsonl, line 1: id "" is empty'),
    ("a.jsonl", '{"question": "q", "id": "../x"}', r'a\.jsonl, line 1: id "\.\./x" has \'\.\' or \'\.\.\' .+ folder'),
    ("a.jsonl", '{"question": "q", "id": "a\\u0000b"}', r'a\.jsonl, line 1: id "a\\u0000b" holds a control character'),
    (
        "a.jsonl",
        json.dumps({"question": "q", "id": "x" * 300}),
        r'a\.jsonl, line 1: id "x+\.\.\. has 300 bytes in UTF-8, more than 200',
    ),
    (
        "a.jsonl",
        '{"question": "q", "id": 1}\n{"question": "q", "id": "1"}',
        r'a\.jsonl, line 2: id "1" is already used at .*a\.jsonl, line 1',
    ),
    (
        "a.jsonl",
        '{"question": "q", "id": "item_2"}\n{"question": "q"}',
        r'a\.jsonl, line 2: id "item_2" is already used at .*a\.jsonl, line 1',
    ),
    ("a.xls", "question\n", r"a\.xls: has an unknown suffix '\.xls'; known are .+"),
    ("a.csv", "", r"a\.csv: is empty"),
    ("a.csv", "question\n", r"a\.csv: has no rows below its heading"),
    ("a.csv", "question,id,question\n1,2,3\n", r"a\.csv: its heading has 'question' twice"),
    ("a.csv", "question\nWhy?,now\n", r"a\.csv, line 2: has 2 cells under a heading of 1"),
    ("a.csv", 'question\n"Why?\n', r"a\.csv, line 2: is broken: .+"),
    ("a.csv", "id\n7\n", r"a\.csv, line 2: question is missing"),
    ("a.csv", b"question\nWhy?\n\xff\n", r"a\.csv: is not UTF-8 in line 1, or soon after"),
    ("a.csv", b"\xff\n", r"a\.csv: is not UTF-8 in line 1, or soon after"),
    ("a.parquet", "no table", r"a\.parquet: is broken: .+"),
    ("test_all.json", '{"chrome": ["1"]}', r"test_all\.json: lists OSWorld tasks, but there is no folder examples/.*"),
]


@pytest.mark.parametrize(("name", "content", "sentence"), WRONG_FILES)
def test_one_sentence_names_file_place_and_field(
    tmp_path: Path, name: str, content: str | bytes, sentence: str
) -> None:
    path = write(tmp_path, name, content)

    with pytest.raises(BenchmarkError) as caught:
        load_items(path)

    assert re.fullmatch(re.escape(str(tmp_path)) + "/" + sentence, str(caught.value), re.DOTALL), str(caught.value)


TASK = {"id": "1", "instruction": "Open it.", "evaluator": {}, "snapshot": "chrome", "proxy": False}

WRONG_TREES = [
    ({"chrome": ["1"]}, {}, r"test_all\.json: lists OSWorld tasks, but there is no folder examples/.*"),
    ({"chrome": ["1", "2"]}, {"chrome/1": TASK}, r"test_all\.json, chrome entry 2: the task file .*2\.json is missing"),
    ({"chrome": []}, {"chrome/1": TASK}, r"test_all\.json: lists no task"),
    (
        {"chrome": ["1"], "os": ["1"]},
        {"chrome/1": TASK, "os/1": TASK},
        r'examples/os/1\.json: id "1" is already used .+',
    ),
    ({"chrome": ["9"]}, {"chrome/9": TASK}, r"examples/chrome/9\.json: id is '1', but .+ lists it as '9'"),
    (
        {"chrome": ["9"]},
        {"chrome/9": {"id": json.loads(nested(900))}},
        r"examples/chrome/9\.json: has lists .+ 64 deep",
    ),
    ({"chrome": ["1"]}, {"chrome/1": {"id": "1"}}, r"examples/chrome/1\.json: instruction is missing"),
    ({"chrome": ["1"]}, {"chrome/1": [TASK]}, r"examples/chrome/1\.json: must be an object, got a list"),
    ({"chrome": ["../1"]}, {"chrome/x": TASK, "1": TASK}, r"test_all\.json, chrome entry 1: '\.\./1' cannot be a .+"),
    ({"..": ["1"]}, {"chrome/1": TASK}, r"test_all\.json, \.\. entry 1: '\.\.' cannot be a folder's or file's name"),
    ({"chrome": [1]}, {"chrome/1": TASK}, r"test_all\.json, chrome entry 1: a task id must be text, got a number"),
    (["1"], {"chrome/1": TASK}, r"test_all\.json: must be an object of domain: \[task ids\].+"),
]


@pytest.mark.parametrize(("lists", "tasks", "sentence"), WRONG_TREES)
def test_a_wrong_tree_names_the_list_or_the_task_file(
    tmp_path: Path, lists: Any, tasks: dict[str, Any], sentence: str
) -> None:
    write_tree(tmp_path, lists, tasks)

    with pytest.raises(BenchmarkError) as caught:
        load_items(tmp_path)

    assert re.fullmatch(re.escape(str(tmp_path)) + "/" + sentence, str(caught.value), re.DOTALL), str(caught.value)


def test_missing_paths_and_other_things(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path, sentence in [
        (tmp_path / "none.jsonl", "no such file or folder"),
        (tmp_path, "is a folder without test_all.json"),
        (tmp_path / "pipe.jsonl", "is neither a file nor a folder"),
        ("a\0.jsonl", "no such file or folder"),
        ("x" * 5000, "cannot be read"),
    ]:
        with pytest.raises(BenchmarkError, match=sentence):
            load_items(path)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.symlink_to("/proc/self/mem")

    with pytest.raises(BenchmarkError, match=r"a\.jsonl: cannot be read: Input/output error"):
        load_items(path)


def test_an_osworld_task_keeps_its_parts_and_overrides_the_runs_options(tmp_path: Path) -> None:
    task = TASK | {"config": [{"type": "sleep"}], "fixed_ip": None, "domain": "wrong"}
    write_tree(tmp_path, {"chrome": ["1"]}, {"chrome/1": task})

    (item,) = load_items(tmp_path)

    assert (item.id, item.question, item.answer, item.domain) == ("1", "Open it.", "", "chrome")
    assert item.env_config == {"snapshot": "chrome", "proxy": False}
    assert {"config", "evaluator", "snapshot", "domain"} <= item.metadata.keys()
    assert (load_items(tmp_path / "examples/chrome/1.json").items) == (item,)


def test_skip_invalid_keeps_the_good_ones_and_their_sentences(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", f'{GOOD}\n{{broken\n{{"question": "r", "id": "item_1"}}\n{GOOD}')

    benchmark = load_items(path, skip_invalid=True)

    assert [item.id for item in benchmark] == ["item_1", "item_4"]
    assert [sentence.split(": ")[0] for sentence in benchmark.skipped] == [f"{path}, line 2", f"{path}, line 3"]


def test_an_item_that_is_nested_too_deeply_is_left_out_like_any_other(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", f"[{nested(500)}, {nested(64).replace('deep', 'fine')}]")

    benchmark = load_items(path, skip_invalid=True)

    assert [item.id for item in benchmark.items] == ["fine"]
    assert len(benchmark.skipped) == 1


def test_a_broken_file_of_a_listed_task_is_left_out_like_any_other(tmp_path: Path) -> None:
    fine = {"id": "t1", "instruction": "Go.", "evaluator": {"func": "infeasible"}}
    tree = write_tree(tmp_path, {"os": ["t1", "t2"]}, {"os/t1": fine})
    broken = write(tmp_path, "examples/os/t2.json", "{broken")

    benchmark = load_items(tree, skip_invalid=True)

    assert [item.id for item in benchmark] == ["t1"]
    assert [str(broken) in sentence for sentence in benchmark.skipped] == [True]


def test_skip_invalid_does_not_make_a_benchmark_out_of_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", "{broken\n{")

    with pytest.raises(BenchmarkError, match=r"none of its 2 entries is valid, the first because: .* line 1: "):
        load_items(path, skip_invalid=True)


def test_answer_pattern_takes_the_last_match_and_keeps_the_whole(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", json.dumps({"question": "q", "answer": "#### 1\nno:\n####  2,000 "}))

    (item,) = load_items(path, answer_pattern="#### (.+)")

    assert item.answer == "2,000"
    assert item.metadata == {"worked_answer": "#### 1\nno:\n####  2,000 "}


def test_an_answer_pattern_that_does_not_come_to_an_end_gives_no_answer_that_it_found_before(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", json.dumps({"question": "q", "answer": f"1 {'a' * 40}!"}))

    with pytest.raises(BenchmarkError, match=r"answer pattern '.*' takes longer than 1 s on the answer of item"):
        load_items(path, answer_pattern=r"(\d|(?:a|aa)+$)")


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("#### (.+)", r"a\.jsonl, line 1: answer pattern '#### \(\.\+\)' finds nothing in the answer of item \"x\""),
        ("(x)?", r"finds nothing"),
        ("####", r"answer pattern '####' needs one group \(\.\.\.\) around the answer"),
        ("(", r"answer pattern '\(' is not a regular expression: .+"),
    ],
)
def test_answer_pattern_that_finds_nothing(tmp_path: Path, pattern: str, sentence: str) -> None:
    path = write(tmp_path, "a.jsonl", '{"question": "q", "id": "x", "answer": "### 1"}')

    with pytest.raises(BenchmarkError, match=sentence):
        load_items(path, answer_pattern=pattern)


@pytest.mark.parametrize(
    ("item_id", "good"),
    [
        ("a/b", True),
        ("...", True),
        ("a..b/.c", True),
        ("日本語 #1", True),
        ("é" * (MAX_ID_BYTES // 2), True),
        ("é" * (MAX_ID_BYTES // 2) + "x", False),
        (" ", False),
        (".", False),
        ("a/..", False),
        ("a/./b", False),
        ("tab\t", False),
        ("\x85", False),
        ("\ud800", False),
    ],
)
def test_ids(item_id: str, good: bool) -> None:
    assert (check_id(item_id) is None) is good


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), json_values, max_size=4)


@settings(max_examples=40)
@given(st.builds(Item, st.text(), st.text(), st.text(), objects, objects))
def test_items_survive_json(item: Item) -> None:
    assert Item.from_dict(json.loads(json.dumps(item.as_dict()))) == item


@pytest.mark.parametrize("field", ["id", "question", "answer", "metadata", "env_config"])
def test_a_stored_item_without_a_field_is_refused(field: str) -> None:
    values = Item("a", "q").as_dict() | {field: 5}

    with pytest.raises(BenchmarkError, match=f": {field} is missing or not"):
        Item.from_dict(values)


def test_real_osworld_lists(shared_data: Path) -> None:
    whole, offline = load_items(shared_data / "osworld"), load_items(shared_data / "osworld" / "test_offline.json")

    assert (len(whole), len(offline)) == (322, 44)
    assert len({item.domain for item in whole}) == 10
    assert {item.id for item in offline} < {item.id for item in whole}
    assert all(item.env_config.keys() == {"snapshot", "proxy", "fixed_ip"} for item in whole)
    assert all("evaluator" in item.metadata for item in whole)


def test_every_real_osworld_task_file_loads_alone(shared_data: Path) -> None:
    paths = sorted((shared_data / "osworld" / "examples").glob("*/*.json"))

    alone = {item.id: item for path in paths for item in load_items(path)}

    assert alone == {item.id: item for item in load_items(shared_data / "osworld")}


def test_real_gsm8k(shared_data: Path) -> None:
    benchmark = load_items(shared_data / "gsm8k" / "test.jsonl", answer_pattern="#### (.+)")

    assert len(benchmark) == 1000
    assert [item.answer for item in benchmark.items[:3]] == ["18", "3", "70000"]
    assert all(str(item.metadata["worked_answer"]).endswith(f"#### {item.answer}") for item in benchmark)


@pytest.mark.parametrize(
    ("name", "fit"),
    [
        ("a", True),
        ("x" * 200, True),
        ("x" * 201, False),
        ("é" * 100, True),
        ("é" * 101, False),
        ("", False),
        (".", False),
        ("..", False),
        ("a/b", False),
        ("a\\b", False),
        ("a\nb", False),
    ],
)
def test_what_a_task_list_names_must_be_fit_for_a_files_name(name: str, fit: bool) -> None:
    assert _is_file_name(name) is fit


@pytest.mark.parametrize(
    ("said", "domain"), [("chrome", "chrome"), ("", None), (7, None), (None, None), (["os"], None)]
)
def test_a_domain_is_a_text(said: object, domain: str | None) -> None:
    assert Item("a", "?", "", {"domain": said}).domain == domain
