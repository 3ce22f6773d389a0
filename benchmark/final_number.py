r"""The metric ``final_number``: compares the last number of two texts, in the forms that people and models write.

It reads signs, thousands separators (``1,234``, ``1'234``, ``1_234``, ``1{,}234``, ``1,\!234``, thin and no-break
spaces), fractions (``3/4``, ``1 1/2``, ``\frac{3}{4}``, ``½``), per cent, powers (``1.5e3``, ``1.5 × 10^3``, ``2^10``,
``10³``), and the words thousand to trillion. It ignores units, ordinals and currencies around a number. The decimal mark
is a point: ``3,5`` is two numbers.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal

from benchmark.items import Item
from benchmark.score import Score
from benchmark.text_metrics import NUMERIC_TOLERANCE, WIDE

_VULGAR = "".join(
    chr(code)
    for code in range(0x2190)
    if unicodedata.category(chr(code)) == "No" and 0 < unicodedata.numeric(chr(code)) < 1
)
_EXPONENTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−–", "-0123456789--")
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_EXPONENT_CHARACTERS = 5

_DECIMAL = r"(?:\d{1,3}(?:(?:,\\!|,|\{,\}|\\,|['’_\u00a0\u2009\u202f])\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_SIGN = "[-+−–]"
_TIMES_TEN = (
    r"\s?(?:×|\\times|\*|x|·|\\cdot)\s?10\s?"
    rf"(?:(?:\^|\*\*(?!\s?–))\s?\{{?\s?(?P<power>{_SIGN}?\d+)\}}?|(?P<raised>⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+))"
)
_RAISED_TO = rf"(?:\s?(?:\^|\*\*(?!\s?–))\s?\{{?\s?(?P<own_power>{_SIGN}?\d+)\}}?|(?P<own_raised>⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+))"
_SPACE = r"[^\S\r\n]"
_NO_SCRIPT = r"(?<![_^])(?<![_^]\{)"
"""Not at the beginning of an exponent or an index."""
_OPENS = r"\s(\[{=:<>,;|&≈~≥≤≠→⇒∈∼±÷/!?…"
_NEGATIVE_DASH = "".join(
    (
        *(rf"(?<!\d[^\w{_OPENS}]{{{length}}})" for length in (1, 2, 3)),
        rf"(?<!\d\s[^\w{_OPENS}])",
        *(rf"(?<!\d</\w{{{length}}}>)" for length in range(1, 9)),
        "–",
    )
)
"""An en dash that is a minus: not one directly behind a number with its unit or its closing marks, as in ``3€–5€``."""
_NUMBER = re.compile(
    rf"""
    (?:(?<![\w)\]}}.%]){_NO_SCRIPT}(?P<sign>[-+−]|{_NEGATIVE_DASH}))?
    (?:
        (?:\\?[$€£¥₹]|(?<![A-Za-z])(?:USD|EUR|GBP|INR|Rs)\.?(?![-–]))\s?(?P<inner_sign>[-−]|{_NEGATIVE_DASH})?
      | (?<![A-Za-z0-9.]){_NO_SCRIPT}(?<!\^{_SIGN})(?<![A-Za-z0-9)\]}}]_{_SIGN})(?<![_^]\{{{_SIGN})
      | (?=\\[dtc]?frac)
    )
    (?:
        (?:(?P<latex_whole>\d+){_SPACE}?)?{_NO_SCRIPT}\\[dtc]?frac\s?
        (?:\{{\s?(?P<latex_sign>{_SIGN}?)\s?(?P<latex_above>{_DECIMAL})\s?\}}|(?P<latex_above_digit>\d))\s?
        (?:\{{\s?(?P<latex_below>{_DECIMAL})\s?\}}|(?P<latex_below_digit>\d))
      | (?:(?P<whole>\d+){_SPACE})?(?P<above>{_DECIMAL})\s?/\s?(?P<below>{_DECIMAL})(?![\d/]|\s?/)
      | (?P<before>\d*)\s?(?P<vulgar>[{_VULGAR}])
      | (?P<decimal>{_DECIMAL})(?:[eE](?P<exponent>{_SIGN}?\d+)(?![A-Za-z0-9])|{_TIMES_TEN}|{_RAISED_TO})?
    )
    (?:{_SPACE}?(?:(?P<percent>\\?%|(?i:percent|per\ cent)\b)|(?P<scale>(?i:thousand|million|billion|trillion))\b))?
    """,
    re.VERBOSE,
)
_SEPARATORS = re.compile(r"[^\d.]")


@dataclass(frozen=True, slots=True)
class Number:
    """A number read from a text."""

    value: Decimal
    percent: bool

    def __str__(self) -> str:
        """Returns the number as text, cut to 100 characters."""
        return f"{self.value}"[:100] + ("%" if self.percent else "")


def last_number(text: str) -> Number | None:
    """Returns the last number of a text; None if it has none."""
    found: Number | None = None
    for match in _NUMBER.finditer(text):
        found = _number(match) or found
    return found


def final_number(prediction: str, answer: str, _item: Item) -> Score:
    """1 when the prediction's last number is within 1e-6 of the answer's.

    ``25%`` counts as both 25 and 0.25 when the other number has no per cent sign.

    Raises:
        ValueError: The answer has no number.
    """
    reference = last_number(answer)
    if reference is None:
        raise ValueError(f"the reference holds no number: {answer[:80]!r}")
    number = last_number(prediction)
    same = number is not None and _same(number, reference)
    return Score(float(same), {"number": number and str(number), "reference": str(reference)})


def _same(one: Number, other: Number) -> bool:
    differences = [WIDE.subtract(one.value, other.value)]
    if one.percent != other.percent:
        shifted, plain = (one, other) if one.percent else (other, one)
        differences.append(WIDE.subtract(_shifted(shifted.value, -2), plain.value))
    return any(WIDE.abs(difference) <= NUMERIC_TOLERANCE for difference in differences)


def _number(match: re.Match[str]) -> Number | None:
    """Returns the number of a match; None when it is too large, or not defined, as in a division by 0."""
    part = match.groupdict()
    value: Decimal | None
    if part["vulgar"]:
        value = WIDE.add(Decimal(part["before"] or 0), _vulgar(part["vulgar"]))
    elif part["decimal"]:
        value = _raised(_decimal(part["decimal"]), part)
    else:
        above = part["latex_above"] or part["latex_above_digit"] or part["above"]
        below = part["latex_below"] or part["latex_below_digit"] or part["below"]
        value = _ratio(above, below, part["latex_whole"] or part["whole"], negative=(part["latex_sign"] or "+") != "+")
    if value is None:
        return None
    if part["scale"]:
        value = _shifted(value, _SCALES[part["scale"].lower()])
    if (part["sign"] or part["inner_sign"] or "+") != "+":
        value = value.copy_negate()
    return Number(value, bool(part["percent"]))


def _decimal(text: str) -> Decimal:
    return Decimal(_SEPARATORS.sub("", text))


def _raised(value: Decimal, part: dict[str, str | None]) -> Decimal | None:
    written = part["exponent"] or part["power"] or part["raised"] or part["own_power"] or part["own_raised"] or "0"
    written = written.translate(_EXPONENTS)
    if len(written) > _EXPONENT_CHARACTERS:
        return None
    exponent = int(written)
    if part["own_power"] is None and part["own_raised"] is None:
        return _shifted(value, exponent)
    return WIDE.power(value, exponent) if value or exponent > 0 else None


def _shifted(value: Decimal, places: int) -> Decimal:
    """Multiplies a number by a power of ten, without rounding."""
    sign, digits, exponent = value.as_tuple()
    return Decimal((sign, digits, int(exponent) + places))


def _ratio(above: str, below: str, whole: str | None, *, negative: bool) -> Decimal | None:
    divisor = _decimal(below)
    if not divisor:
        return None
    ratio = WIDE.divide(_decimal(above), divisor)
    return WIDE.add(Decimal(whole or 0), ratio.copy_negate() if negative else ratio)


def _vulgar(character: str) -> Decimal:
    above, _, below = unicodedata.normalize("NFKD", character).partition("\N{FRACTION SLASH}")
    return WIDE.divide(Decimal(above), Decimal(below))
