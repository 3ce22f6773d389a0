"""Metrics that compare two texts: pure functions that return a `Score`, without models or statistics.

When words or numbers are compared, two empty texts count as the same (1), and one empty text as different (0).
"""

from __future__ import annotations

import re
import string
import unicodedata
from bisect import bisect_left
from collections import Counter
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

from rapidfuzz import fuzz
from rapidfuzz.distance import LCSseq

from benchmark.items import Item
from benchmark.score import Score

NUMERIC_TOLERANCE = Decimal("1e-6")

_NUMBER = re.compile(r"-?\d+\.?\d*")
_THOUSANDS_SEPARATOR = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_TRUTH_WORDS = {"true": "yes", "false": "no"}
WIDE = Context(prec=50, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Compares long numbers without rounding, up to 50 digits."""


class _Punctuation(dict[int, int | None]):
    """A table for `str.translate` that drops punctuation of every script and keeps the rest."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        dropped = character in string.punctuation or unicodedata.category(character).startswith("P")
        self[code] = None if dropped else code
        return self[code]


_PUNCTUATION = _Punctuation()


def simplify(text: str) -> str:
    """Returns the text in lower case, without punctuation and a, an, the, and with single spaces."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def normalize(text: str) -> str:
    """Like `simplify`; a text that is only ``true`` or ``false`` becomes ``yes`` or ``no``."""
    simple = simplify(text)
    return _TRUTH_WORDS.get(simple, simple)


def exact_match(prediction: str, answer: str, _item: Item) -> Score:
    """1 when both are equal, except for surrounding blanks; the details say whether they are when normalised."""
    normalized = normalize(prediction) == normalize(answer)
    return Score(float(prediction.strip() == answer.strip()), {"normalized_match": normalized})


def exact_match_normalized(prediction: str, answer: str, _item: Item) -> Score:
    """1 when both are equal after normalising."""
    return Score(float(normalize(prediction) == normalize(answer)))


def f1_score(prediction: str, answer: str, _item: Item) -> Score:
    """Harmonic mean of precision and recall of normalised words, counted with repetition.

    A yes or no against anything else is 0.
    """
    predicted, reference = normalize(prediction), normalize(answer)
    if predicted != reference and not {predicted, reference}.isdisjoint({"yes", "no"}):
        return Score(0.0, {"precision": 0.0, "recall": 0.0})
    predicted_words, reference_words = predicted.split(), reference.split()
    common = (Counter(predicted_words) & Counter(reference_words)).total()
    return _f1(common, len(predicted_words), len(reference_words))


def similarity(prediction: str, answer: str, _item: Item) -> Score:
    """Returns the share of matching characters: 2 M / T, where T is the sum of both lengths, without surrounding blanks.

    difflib's ratio has the same form, but its M counts the blocks that a greedy search finds, and depends on the order
    of the two texts; here M is the longest common subsequence (rapidfuzz): symmetric, never lower, and fast.
    """
    return Score(fuzz.ratio(prediction.strip(), answer.strip()) / 100)


def contains_answer(prediction: str, answer: str, _item: Item) -> Score:
    """1 when the answer occurs in the prediction, both normalised; an empty answer only in an empty prediction."""
    if not simplify(answer):
        return Score(float(not simplify(prediction)))
    found = normalize(answer) in normalize(prediction) or simplify(answer) in simplify(prediction)
    return Score(float(found))


def numeric_match(prediction: str, answer: str, _item: Item) -> Score:
    """1 when any number of the answer is within 1e-6 of any number of the prediction.

    Numbers are read without thousands separators and compared as decimals, so long ones are not rounded.
    """
    predicted, reference = sorted(numbers_in(prediction)), numbers_in(answer)
    if not predicted or not reference:
        return Score(float(not predicted and not reference), {"matched": None})
    for number in reference:
        position = bisect_left(predicted, number)
        for near in predicted[max(position - 1, 0) : position + 1]:
            if WIDE.abs(WIDE.subtract(near, number)) <= NUMERIC_TOLERANCE:
                return Score(1.0, {"matched": str(number)[:100]})
    return Score(0.0, {"matched": None})


def bleu_score(prediction: str, answer: str, _item: Item) -> Score:
    """Returns the share of the predicted words that occur in the answer, whatever their case."""
    predicted, reference = prediction.lower().split(), answer.lower().split()
    if not predicted or not reference:
        return Score(float(not predicted and not reference))
    known = set(reference)
    return Score(sum(word in known for word in predicted) / len(predicted))


def rouge_score(prediction: str, answer: str, _item: Item) -> Score:
    """F1 of the longest common subsequence of words, whatever their case (ROUGE-L)."""
    predicted, reference = prediction.lower().split(), answer.lower().split()
    return _f1(LCSseq.similarity(predicted, reference), len(predicted), len(reference))


def _f1(common: int, predicted: int, reference: int) -> Score:
    if not predicted or not reference:
        same = float(predicted == reference)
        return Score(same, {"precision": same, "recall": same})
    details = {"precision": common / predicted, "recall": common / reference}
    return Score(2 * common / (predicted + reference), details)


def numbers_in(text: str) -> list[Decimal]:
    """Returns the numbers that `numeric_match` reads from a text."""
    return [Decimal(number) for number in _NUMBER.findall(_THOUSANDS_SEPARATOR.sub("", text))]
