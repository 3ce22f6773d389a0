from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_tasks.environments.arithmetic import ArithmeticRefused, calculate


def test_every_annotation_of_gsm8k_has_the_value_written_there(shared_data: Path) -> None:
    annotations: list[str] = []
    for line in (shared_data / "gsm8k" / "test.jsonl").read_text().splitlines():
        annotations += re.findall(r"<<(.*?)>>", json.loads(line)["answer"])

    different = []
    for annotation in annotations:
        expression, _, value = annotation.partition("=")
        if abs(float(calculate(expression)) - float(calculate(value))) > 1e-9:
            different.append(annotation)

    assert len(annotations) > 3000
    assert different == []


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("48/2", "24"),
        ("20*.5", "10"),
        (".5*100", "50"),
        ("2+3*4", "14"),
        ("(2+3)*4", "20"),
        ("7/2", "3.5"),
        ("1/3", "0.3333333333333333"),
        ("0.1+0.2", "0.3"),
        ("1.1*3", "3.3"),
        ("-5 + 3", "-2"),
        ("2**0.5", "1.4142135623730951"),
        ("2**-1", "0.5"),
        ("10**400/10**399", "10"),
        ("9007199254740993*3/3", "9007199254740993"),
        ("factorial(20)", "2432902008176640000"),
        ("10/2", "5"),
        ("factorial(10/2)", "120"),
        ("5%", "0.05"),
        ("-5%", "-0.05"),
        ("10%*50", "5"),
        ("200/50%", "400"),
        ("100%-20%", "0.8"),
        ("(20+5)%*8", "2"),
        ("max(5%, 1)", "1"),
        ("15% of 80", "12"),
        ("15 % of 1,000", "150"),
        ("10%3", "1"),
        ("7 % 4", "3"),
        ("7 // 2", "3"),
        ("2^10", "1024"),
        ("6×7", "42"),
        ("84÷2−0", "42"),
        ("$80,000+50,000", "130000"),
        ("max(1,200,3)", "200"),
        ("min([4, 2, 3])", "2"),
        ("sum([1, 2, 3])", "6"),
        ("math.sqrt(16)", "4"),
        ("round(2.567, 2)", "2.57"),
        ("round(2.4)", "2"),
        ("pow(2, 10)", "1024"),
        ("pow(2, 10**9, 7)", "2"),
        ("gcd(12, 18)", "6"),
        ("comb(5, 2)", "10"),
        ("pi", "3.141592653589793"),
        ("  3 ", "3"),
    ],
)
def test_values(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "not an arithmetic expression"),
        ("2 +", "not an arithmetic expression"),
        ("48/2=24", "not an arithmetic expression"),
        ("a = 3", "not an arithmetic expression"),
        ("1; 2", "not an arithmetic expression"),
        ("\0", "null bytes"),
        ("%5", "a percent sign needs a number|invalid syntax"),
        ("1/0", "division by zero"),
        ("x + 1", "'x' is not defined"),
        ("sqrt(-1)", "math domain error|nonnegative"),
        ("(-8)**.5", "no real value"),
        ("2j", "no real value"),
        ("True + 1", "only numbers"),
        ("'a' * 10", "only numbers"),
        ("[1] * 10**9", "only numbers"),
        ("[1, [2]]", "only numbers"),
        ("3, 4", "only numbers"),
        ("2(3)", "write \\* to multiply"),
        ("__import__('os')", "not defined"),
        ("(1).__class__", "Attribute is not available"),
        ("lambda: 1", "Lambda is not available"),
        ("[f for f in (1,)]", "ListComp is not available"),
        ("hypot(*[1, 2])", "Starred is not available"),
        ("sum(1)", "not iterable"),
        ("1e308 * 10", "not a finite number"),
    ],
)
def test_what_has_no_value_is_refused_with_the_reason(expression: str, reason: str) -> None:
    with pytest.raises(ArithmeticRefused, match=reason):
        calculate(expression)


@pytest.mark.parametrize(
    "bomb",
    [
        "9**9**9",
        "9**9**9**9",
        "(9**9)**(9**9)",
        "2**3500",
        "pow(2, 10**9)",
        "pow(3.0, 10**9)",
        "factorial(10**9)",
        "factorial(factorial(400))",
        "comb(10**9, 5*10**8)",
        "perm(3000, 3000)",
        "lcm(2**3000, 3**2000)",
        "round(5, -10**9)",
        "10**400/3",
        "0x" + "f" * 900,
        "*".join(["9**999"] * 100),
        "-" * 900 + "1",
        "(" * 400 + "1" + ")" * 400,
        "1" * 100_000,
        "sum([" + "9**999," * 100 + "])*" * 2 + "9**999",
    ],
)
def test_bombs_are_refused(bomb: str) -> None:
    with pytest.raises(ArithmeticRefused):
        calculate(bomb)


@given(st.text(alphabet="0123456789.+-*/%()^,$ abefgimnopqrstx[]'", max_size=60))
def test_any_text_has_a_value_or_is_refused(text: str) -> None:
    with contextlib.suppress(ArithmeticRefused):
        assert calculate(text)
