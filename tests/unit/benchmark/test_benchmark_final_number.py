"""The metric final_number: the last number of an answer, however people and models write numbers."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmark.final_number import last_number
from benchmark.items import Item
from benchmark.metrics import metric

SAME = [
    ("The answer is 25.2", "25.2"),
    ("3.5 kg and 1.5 kg make 5 kg, so it is 25.2 dollars a kilogram.", "25.2"),
    ("It is 25.", "25"),
    ("#### 1,234,567", "1234567"),
    ("1234567", "1,234,567"),
    ("1\u202f234\u00a0567 people", "1234567"),
    ("1'234'567", "1234567"),
    ("1_000_000", "1000000"),
    (r"$1{,}234$", "1234"),
    (r"\(1\,234\)", "1234"),
    ("-5", "\u22125"),
    ("It falls to -$5", "-5"),
    ("$-5", "-5"),
    ("7-5", "5"),
    ("It is \u20135.", "-5"),
    ("\u20135", "\u22125"),
    ("It falls to \u2013$5", "-5"),
    ("$\u20135$", "-5"),
    ("EUR \u20133", "-3"),
    ("\\boxed{\u20135}", "-5"),
    ("**\u20135**", "-5"),
    ("\\frac{\u20131}{2}", "-0.5"),
    ("5 \u00d7 10^\u20133", "0.005"),
    ("5e\u22123", "0.005"),
    ("5e\u20133", "0.005"),
    ("9.81 m s^\u20132", "9.81"),
    ("9.81 m s^{\u20132}", "9.81"),
    ("9.81 m at x_\u20132", "9.81"),
    ("from 10\u201320", "20"),
    ("3\u20135", "5"),
    ("pages 3 \u2013 5", "5"),
    ("5, between \u2013 and", "5"),
    ("$3\u2013$5", "5"),
    ("$3$\u2013$5$", "5"),
    ("$3$\u20135", "5"),
    ("3\u20ac\u20135\u20ac", "5"),
    ("3 \u20ac\u20135 \u20ac", "5"),
    ("3 EUR\u20135 EUR", "5"),
    ("EUR\u20135", "5"),
    ("20\u00b0\u201325\u00b0", "25"),
    ("20 \u00b0\u201325 \u00b0", "25"),
    ("**3**\u20135", "5"),
    ("**3** \u20135", "-5"),
    ("5%\u201310%", "10%"),
    ("(3)\u20135", "5"),
    ("it is 5kg", "5"),
    ("the 3rd", "3"),
    ("25%", "25"),
    ("25%", "25 percent"),
    ("25%", "0.25"),
    ("0.25", r"25\%"),
    ("3/4", "0.75"),
    ("0.75", "3/4"),
    (r"\frac{3}{4}", "3 / 4"),
    (r"$-\dfrac{1}{2}$", "-0.5"),
    ("1 1/2 cups", "1.5"),
    ("1½ cups", "1.5"),
    ("½", ".5"),
    ("1/3", "0.3333333"),
    ("1.5e3", "1500"),
    ("1.5 × 10^3 m", "1500"),
    (r"1.5 \times 10^{3}", "1500"),
    ("1.5 × 10³", "1500"),
    ("6.02*10**23", "6.02e23"),
    ("2^10", "1024"),
    ("10**-2", "0.01"),
    ("2 million people", "2,000,000"),
    ("1.2 billion", "1200000000"),
    ("25 m2", "25"),
    ("25 m^2", "25"),
    ("25 m^{2}", "25"),
    ("25 m²", "25"),
    ("25 g of CO2", "25"),
    (r"\boxed{42}", "42"),
    ("**42**", "42"),
    ("答案是25。", "25"),
    ("+7", "7"),
    (r"\$1,000.00", "1000"),
    ("9" * 60, "9" * 60),
    ("1.000001", "1"),
    ("0.5000010", "0.5"),
    ("1e-9999", "0"),
    ("1e99999", "10e99998"),
    ("0^1", "0"),
    ("9.81 m s^-2", "9.81"),
    ("9.81 m s^{-2}", "9.81"),
    ("5 mol L^\u22121 at x_{-1}", "5"),
    (r"\boxed{10,\!000}", "10000"),
    (r"1,\!234,\!567", "1234567"),
    (r"1\frac{1}{2}", "1.5"),
    (r"-1 \frac{1}{2}", "-1.5"),
    (r"\displaystyle\frac{3}{4}", "0.75"),
    (r"x \approx\cfrac{3}{4}", "0.75"),
    (r"\frac{-1}{2}", "-0.5"),
    (r"-\frac{-1}{2}", "0.5"),
    (r"\frac12", "0.5"),
    (r"\frac{1}2", "0.5"),
    (r"\tfrac 3{40}", "0.075"),
    ("10⁶", "1000000"),
    ("2⁻¹", "0.5"),
    ("2 Million", "2000000"),
    ("25 Percent", "0.25"),
    ("Rs.250", "250"),
    ("Rs. 1,250", "1250"),
    ("USD250", "250"),
    ("EUR -3", "-3"),
    ("part 1\n3/4", "0.75"),
    ("The charge is 2\u207b", "2"),
    ("J = 1\u207b\u207b", "1"),
    ("5 \u00d7 10\u207b", "10"),
    ("Rank: 5\nMillion Dollar Baby", "5"),
    ("5\nPercent", "5"),
    ("EUR-5", "5"),
    ("_-5_", "5"),
    ("2\u00d7\u20133\u00d7", "3"),  # ranges, with an en dash
    ("5\u00a2\u201310\u00a2", "10"),
    ("3 \u2103\u20135 \u2103", "5"),
    ("3\u2030\u20135\u2030", "5"),
    ("3+\u20135+", "5"),
    ("3 $\u20135 $", "5"),
    ("`3`\u20135", "5"),
    ("3</b>\u20135", "5"),
    ("'3'\u20135", "5"),
    ("x = \u20135", "-5"),
    ("x=\u20135", "-5"),
    ("(\u20135)", "-5"),
    ("US$\u20135", "-5"),
    ("`\u20135`", "-5"),
    ("5 \u00f7 \u20131", "-1"),
    ("\u22123\u2013\u22125", "-5"),
    ("<answer>\u20135</answer>", "-5"),
    ("<b>\u20135</b>", "-5"),
    ("|\u20135|", "-5"),
    ("x>\u20135", "-5"),
    ("x\u2265\u20135", "-5"),
    ("x \u2260\u20135", "-5"),
    ("\u2192\u20135", "-5"),
    ("x\u2208\u20135", "-5"),
    ("&\u20135", "-5"),
    ("=&\u20135", "-5"),
    ("(3,\u20135)", "-5"),
    ("2,\u20135", "-5"),
    ("+\u20135", "-5"),
    ("\u00ab\u20135\u00bb", "-5"),
    ("!\u20135", "-5"),
    ("\u2026\u20135", "-5"),
    ("<td>\u20135</td>", "-5"),
    ("3>\u20135", "-5"),
    ("\u00ab3\u00bb\u20135", "5"),
    ("3</answer>\u20135", "5"),
    ("3\u2032\u2032\u20135\u2032\u2032", "5"),
    ("It is \u20135 \u00b0C", "-5"),
]
DIFFERENT = [
    ("The answer is 24 and not 25.2", "24"),
    ("12, 24", "12"),
    ("25%", "0.25%"),
    ("25%", "2500"),
    ("-5", "5"),
    ("1,234", "234"),
    ("3/4", "4"),
    ("1/2/2026", "0.5"),
    ("2 million", "2"),
    ("9" * 60, "9" * 59 + "8"),
    ("1.0000011", "1"),
    ("1e100000", "10e99999"),
    ("0^0", "0"),
    ("1e5", "5"),
    ("nothing at all", "0"),
    ("x1 and CO2", "2"),
    ("5/0", "5"),
    ("", "3"),
    ("3 m s^-2", "9.81 m s^-2"),
    (r"20,\!000", r"10,\!000"),
    ("10³", "10⁶"),
    (r"1\frac{1}{2}", "2"),
    ("MUSD250", "250"),
]


def score(prediction: str, answer: str) -> float:
    return metric("final_number")(prediction, answer, Item("i", "?")).value


@pytest.mark.parametrize(("prediction", "answer"), SAME, ids=ascii)
def test_the_same_number_is_right_however_it_is_written(prediction: str, answer: str) -> None:
    assert score(prediction, answer) == 1
    assert score(answer, prediction) == 1


@pytest.mark.parametrize(("prediction", "answer"), DIFFERENT, ids=ascii)
def test_another_number_is_wrong(prediction: str, answer: str) -> None:
    assert score(prediction, answer) == 0


def test_the_details_tell_what_was_compared() -> None:
    found = metric("final_number")("6 times 7 is 42 %", "0.43", Item("i", "?"))

    assert dict(found.details) == {"number": "42%", "reference": "0.43"}


def test_a_reference_without_a_number_gives_no_score() -> None:
    with pytest.raises(ValueError, match=r"^the reference holds no number: 'forty-two'$"):
        score("42", "forty-two")


around = st.text(max_size=20) | st.text(alphabet="ab, .19-/%^e()½{}\\n$x×", max_size=20)
texts = st.builds("{} {} {}".format, around, st.integers(-(10**9), 10**9) | st.decimals(-1000, 1000, places=3), around)


@given(prediction=texts, answer=texts)
def test_any_two_texts_with_numbers_are_compared_the_same_way_round_or_back(prediction: str, answer: str) -> None:
    assume(last_number(prediction) is not None and last_number(answer) is not None)

    assert score(prediction, answer) == score(answer, prediction)
    assert score(answer, answer) == score(prediction, prediction) == 1


def test_noise_does_not_find_the_answer_as_numeric_match_does() -> None:
    """Of what an untrained model says, numbers everywhere, one in a hundred ends with the right one."""
    draw = random.Random(1)
    told = [" ".join(str(draw.randrange(100)) for _ in range(30)) for _ in range(300)]

    by_any = sum(metric("numeric_match")(text, "42", Item("i", "?")).value for text in told)
    by_last = sum(score(text, "42") for text in told)

    assert by_any > 60
    assert by_last < 10


@pytest.mark.parametrize("part", ["1", "1,", "1/", "1,111", "1e", "10^", "(", "-", r"\frac{1}", "1 1/", "1 × 10^", "½"])
def test_a_long_answer_is_read_to_its_end(part: str) -> None:
    """Whatever a model repeats for ever; the test's own time limit fails a search that takes quadratic time."""
    assert score(part * 100_000 + " so 7", "7") == 1


def test_an_exponent_that_no_number_can_have_is_no_number() -> None:
    assert score("1e99999999999", "1") == 0
    assert score("10^99999999999", "10") == 0
