"""The metrics' definitions as tables, and what must hold for any two texts."""

from __future__ import annotations

import difflib
import functools
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark import metrics as metrics_module
from benchmark.errors import BenchmarkError, UnknownMetric
from benchmark.items import Item
from benchmark.metrics import ENTRY_POINT_GROUP, JUDGE_METRIC, Score, metric, metric_names, reference_problem

ITEM = Item("1", "q")
TEXT_METRICS = [name for name in metric_names() if name not in {JUDGE_METRIC, "final_number"}]

CASES = [
    ("exact_match", " 18 ", "18\n", 1),
    ("exact_match", "Paris", "paris", 0),
    ("exact_match", "", "", 1),
    ("exact_match_normalized", "The  Cat's, hat!", "cats hat", 1),
    ("exact_match_normalized", "True.", "yes", 1),
    ("exact_match_normalized", "no", "False", 1),
    ("exact_match_normalized", "It is true", "it is yes", 0),
    ("exact_match_normalized", "theatre", "atre", 0),
    ("exact_match_normalized", "«Straße»", "straße", 1),
    ("exact_match_normalized", "the", "", 1),
    ("f1_score", "a cat sat", "the cat", 2 / 3),
    ("f1_score", "cat cat", "cat", 2 / 3),
    ("f1_score", "cat cat", "cat cat cat", 0.8),
    ("f1_score", "yes", "no", 0),
    ("f1_score", "yes it is", "yes", 0),
    ("f1_score", "True", "yes", 1),
    ("f1_score", "", "", 1),
    ("f1_score", "The.", "a", 1),
    ("f1_score", "", "cat", 0),
    ("f1_score", "cat", "", 0),
    ("similarity", "abcd", "abcd", 1),
    ("similarity", "abcd", "bcde", 0.75),
    ("similarity", "abc", "xyz", 0),
    ("similarity", "", "", 1),
    ("similarity", "", "x", 0),
    ("contains_answer", "I think it is Paris.", "paris", 1),
    ("contains_answer", "paris", "I think it is Paris.", 0),
    ("contains_answer", "Yes, it is", "True", 1),
    ("contains_answer", "That is true.", "True", 1),
    ("contains_answer", "anything", "", 0),
    ("contains_answer", "", "", 1),
    ("numeric_match", "It costs $70,000.", "70000", 1),
    ("numeric_match", "1,234,567.5 in all", "1234567.50", 1),
    ("numeric_match", "lists 1,2 stay apart", "12", 0),
    ("numeric_match", "not a separator: 4,1000", "41000", 0),
    ("numeric_match", "x = 0.1000009", "0.1", 1),
    ("numeric_match", "x = 0.100001", "0.1", 1),
    ("numeric_match", "x = 0.1000011", "0.1", 0),
    ("numeric_match", "10000000000000000001", "10000000000000000002", 0),
    ("numeric_match", "-5", "5", 0),
    ("numeric_match", "first 3, then 8", "8 or 9", 1),
    ("numeric_match", "none", "nothing", 1),
    ("numeric_match", "none", "3", 0),
    ("numeric_match", "3", "none", 0),
    ("numeric_match", "9" * 400, "9" * 399 + "8", 0),
    ("bleu_score", "the the cat", "The dog", 2 / 3),
    ("bleu_score", "", "", 1),
    ("bleu_score", "", "x", 0),
    ("bleu_score", "x", "", 0),
    ("rouge_score", "a b c d", "a x c", 4 / 7),
    ("rouge_score", "B A", "a b", 0.5),
    ("rouge_score", "", "", 1),
    ("rouge_score", "x", "", 0),
]


@pytest.mark.parametrize(("name", "prediction", "answer", "expected"), CASES)
def test_definitions(name: str, prediction: str, answer: str, expected: float) -> None:
    assert metric(name)(prediction, answer, ITEM).value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("prediction", "answer", "matched"),
    [("3 or 4", "4 or 3", "4"), ("3", "4", None), ("none", "none", None), ("", "4", None)],
)
def test_numeric_match_tells_which_number_it_found(prediction: str, answer: str, matched: str | None) -> None:
    assert metric("numeric_match")(prediction, answer, ITEM).details == {"matched": matched}


@pytest.mark.parametrize(
    ("prediction", "answer", "precision", "recall"),
    [("x y", "x", 0.5, 1.0), ("x", "x y", 1.0, 0.5), ("", "", 1.0, 1.0), ("", "x", 0.0, 0.0), ("y", "x", 0.0, 0.0)],
)
@pytest.mark.parametrize("name", ["f1_score", "rouge_score"])
def test_f1_tells_what_it_is_made_of(name: str, prediction: str, answer: str, precision: float, recall: float) -> None:
    assert metric(name)(prediction, answer, ITEM).details == {"precision": precision, "recall": recall}


def test_exact_match_tells_the_normalised_match_in_its_details() -> None:
    assert metric("exact_match")("Paris.", "paris", ITEM) == Score(0.0, {"normalized_match": True})


texts = st.text(max_size=40) | st.text(alphabet="ab, .19-yesno\n", max_size=40)


@pytest.mark.parametrize("name", TEXT_METRICS)
@given(prediction=texts, answer=texts)
def test_scores_stay_in_bounds_and_a_text_matches_itself(name: str, prediction: str, answer: str) -> None:
    score = metric(name)

    assert 0.0 <= score(prediction, answer, ITEM).value <= 1.0
    assert score(answer, answer, ITEM).value == 1.0


@pytest.mark.parametrize("name", [name for name in TEXT_METRICS if name not in {"contains_answer", "bleu_score"}])
@given(prediction=texts, answer=texts)
def test_symmetric_metrics(name: str, prediction: str, answer: str) -> None:
    assert metric(name)(prediction, answer, ITEM).value == pytest.approx(metric(name)(answer, prediction, ITEM).value)


@given(prediction=texts, answer=texts)
def test_similarity_is_never_below_difflibs_ratio(prediction: str, answer: str) -> None:
    theirs = difflib.SequenceMatcher(None, prediction.strip(), answer.strip(), autojunk=False).ratio()

    assert metric("similarity")(prediction, answer, ITEM).value >= theirs - 1e-12


@given(
    st.lists(st.decimals(-1000, 1000, places=3), max_size=8), st.lists(st.decimals(-1000, 1000, places=3), max_size=8)
)
def test_numeric_match_is_any_against_any(predicted: list[object], reference: list[object]) -> None:
    expected = bool(set(predicted) & set(reference)) if predicted and reference else not predicted and not reference

    score = metric("numeric_match")(" ; ".join(map(str, predicted)), " ; ".join(map(str, reference)), ITEM)

    assert score.value == float(expected)


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("exact_match", "Paris", ""),
        ("exact_match", " \n", "has no answer that exact_match could compare with"),
        ("llm_judgement", "", ""),
        ("somebodys_own", "", ""),
        ("final_number", "it is 4", ""),
        ("numeric_match", "it is 4", ""),
        ("final_number", "four", "its answer 'four' holds no number, which final_number compares"),
        ("numeric_match", "four", "its answer 'four' holds no number, which numeric_match compares"),
        ("numeric_match", "\u00bd", "its answer '\u00bd' holds no number, which numeric_match compares"),
        ("final_number", "\u00bd", ""),
        (
            "contains_answer",
            "A",
            "its answer 'A' has no word for contains_answer, which leaves out a, an, the and punctuation",
        ),
        ("exact_match_normalized", "A", ""),
        ("exact_match", "A", ""),
        ("contains_answer", "B", ""),
        ("final_number", "x" * 60, f"its answer '{'x' * 60}' holds no number, which final_number compares"),
        ("final_number", "x" * 61, f"its answer '{'x' * 57}...' holds no number, which final_number compares"),
    ],
)
def test_an_answer_that_a_metric_cannot_use_is_told(name: str, answer: str, says: str) -> None:
    assert reference_problem(name, answer) == says


def test_long_texts_take_no_quadratic_time() -> None:
    numbers, words = " ".join(map(str, range(100_000))), "word " * 20_000

    assert metric("numeric_match")(numbers, numbers.replace(" ", ".5 ") + ".5", ITEM).value == 0.0
    assert metric("rouge_score")(words, words + "end", ITEM).value > 0.99
    assert metric("similarity")(words, words + "end", ITEM).value > 0.99


def of_a_package(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    point = EntryPoint("theirs", value, ENTRY_POINT_GROUP)
    monkeypatch.setattr(metrics_module, "entry_points", lambda group: [point] if group == ENTRY_POINT_GROUP else [])


def takes_two(prediction: str, answer: str) -> Score:
    return Score(float(prediction == answer))


def _with_level(level: float, prediction: str, answer: str, _item: Item) -> Score:
    return Score(level * (prediction == answer))


@functools.wraps(takes_two)
def without_the_item(prediction: str, answer: str, _item: Item) -> Score:
    return takes_two(prediction, answer)


@functools.wraps(_with_level)
def with_too_little(prediction: str) -> Score:
    return Score(float(not prediction))


partly = functools.partial(_with_level, 0.5)


class _Decorated:
    """As a decorator makes one whose own signature says nothing."""

    def __init__(self, what: Any) -> None:
        self.__wrapped__ = what

    def __call__(self, *given: Any) -> Score:
        return self.__wrapped__(*given)  # type: ignore[no-any-return]


wrapped = _Decorated(functools.partial(_with_level, 1.0))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("nothing_of_this_name:it", "cannot be imported: No module named 'nothing_of_this_name'"),
        ("json:nothing", "cannot be imported: module 'json' has no attribute 'nothing'"),
        ("json:__doc__", "cannot be used: json:__doc__ must be callable, got str"),
        (
            f"{__name__}:takes_two",
            f"cannot be used: {__name__}:takes_two must take (prediction, answer, item), "
            "but takes (prediction, answer)",
        ),
        (
            f"{__name__}:with_too_little",
            f"cannot be used: {__name__}:with_too_little must take (prediction, answer, item), but takes (prediction)",
        ),
    ],
)
def test_a_packages_metric_that_cannot_be_used_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, value: str, says: str
) -> None:
    of_a_package(monkeypatch, value)
    assert metric_names()[-1] == "theirs"
    with pytest.raises(BenchmarkError) as caught:
        metric("theirs")

    assert str(caught.value) == f"metric 'theirs' {says}"


def test_a_packages_module_that_fails_or_leaves_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, code, says in (
        ("metric_that_fails", "raise ValueError('no licence')", "ValueError: no licence"),
        ("metric_that_leaves", "raise SystemExit(3)", "SystemExit: 3"),
    ):
        (tmp_path / f"{name}.py").write_text(code)
        of_a_package(monkeypatch, f"{name}:it")
        with pytest.raises(BenchmarkError, match=f"^metric 'theirs' cannot be imported: {says}$"):
            metric("theirs")


def test_a_packages_metric_is_taken_whatever_it_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (
        f"{__name__}:partly",
        f"{__name__}:wrapped",
        f"{__name__}:without_the_item",
        "builtins:max",
    ):
        of_a_package(monkeypatch, value)
        theirs = metric("theirs")
        if not value.startswith("builtins"):
            assert [theirs("x", answer, ITEM).value > 0 for answer in ("x", "y")] == [True, False]


@pytest.mark.parametrize(
    ("name", "hint"), [("exact_mach", "did you mean exact_match?"), ("zzz", "unknown metric 'zzz'; known are")]
)
def test_an_unknown_metric_lists_the_known(name: str, hint: str) -> None:
    with pytest.raises(UnknownMetric) as caught:
        metric(name)

    assert hint in str(caught.value)
    assert all(known in str(caught.value) for known in metric_names())
    assert isinstance(caught.value, BenchmarkError)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_score_out_of_bounds_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Score(value)


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that adds two metrics, one of which cannot be imported."""
    (tmp_path / "length_metric.py").write_text(
        "from benchmark.metrics import Score\n"
        "def same_length(prediction, answer, item):\n"
        "    return Score(float(len(prediction) == len(answer)))\n"
    )
    metadata = tmp_path / "length_metric-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: length-metric\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[benchmark.metrics]\nsame_length = length_metric:same_length\nlost = length_metric:absent\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("length_metric", None)


@pytest.mark.usefixtures("other_package")
def test_other_packages_add_metrics_by_entry_points() -> None:
    assert {"same_length", "lost"} <= set(metric_names())
    assert metric("same_length")("abc", "xyz", ITEM).value == 1.0
    with pytest.raises(BenchmarkError, match="metric 'lost' cannot be imported"):
        metric("lost")


def test_importing_items_and_metrics_loads_nothing_heavy() -> None:
    script = (
        "import sys, benchmark, benchmark.items, benchmark.metrics\n"
        "benchmark.metrics.metric('llm_judgement'); benchmark.metrics.metric('f1_score'); benchmark.evaluate\n"
        "print([name for name in ('numpy', 'scipy', 'openai', 'pydantic') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "[]"
