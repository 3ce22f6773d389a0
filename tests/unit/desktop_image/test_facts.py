"""What is known of an image, as text and back; text that holds nothing of the kind is refused, however large it is inside."""

from __future__ import annotations

import base64
import json
import zlib

import pytest

from desktop_image.conformance import facts as facts_module
from desktop_image.conformance.facts import VERSION, Facts, FactsUnreadable, packed, unpacked

FACTS = Facts(
    {"program": frozenset({"bc", "ls"}), "network": frozenset()},
    frozenset({"Untitled 1 - LibreOffice Calc"}),
    frozenset({"Mail.thunderbird"}),
    frozenset({"gedit"}),
)


def as_text(document: object) -> str:
    return base64.b64encode(zlib.compress(json.dumps(document).encode())).decode()


def test_facts_come_back_as_they_were() -> None:
    assert unpacked(packed(FACTS)) == FACTS
    assert unpacked(packed(Facts())) == Facts()


def test_something_is_there_or_not() -> None:
    assert FACTS.has("program", "bc")
    assert not FACTS.has("program", "vlc")
    assert not FACTS.has("setting", "bc")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no base64!",
        "aGVsbG8=",
        packed(FACTS)[:-8],
        as_text([]),
        as_text({"version": VERSION, "there": [], "windows": {}}),
        as_text({"version": VERSION, "there": {}}),
        as_text({"version": VERSION + 1, "there": {}, "windows": {}}),
        base64.b64encode(zlib.compress(b"[" * 100_000)).decode(),
    ],
)
def test_what_holds_no_facts_is_refused(text: str) -> None:
    with pytest.raises(FactsUnreadable):
        unpacked(text)


def test_what_is_wrong_inside_is_passed_over() -> None:
    document = {
        "version": VERSION,
        "there": {"program": ["ls", 3, None], "file": "x"},
        "windows": {"titles": [1, "t"], "classes": None},
    }

    assert unpacked(as_text(document)) == Facts(
        {"program": frozenset({"ls"}), "file": frozenset()}, titles=frozenset({"t"})
    )


def test_no_more_is_unpacked_than_facts_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "LARGEST_BYTES", 1000)

    with pytest.raises(FactsUnreadable):
        unpacked(packed(Facts({"file": frozenset(map(str, range(1000)))})))
