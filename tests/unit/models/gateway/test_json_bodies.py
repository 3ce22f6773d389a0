"""Bodies of requests are JSON objects within bounds."""

from __future__ import annotations

import pytest

from rollout_tasks.models.gateway.json_body import BadBodyError, read_object


def nested(depth: int) -> bytes:
    return b'{"a": ' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize("body", [b"{}", b'{"a": [1, -2.5e3, "\\ud83d", "\xc3\xa4", null, true]}', nested(63)])
def test_objects_are_read(body: bytes) -> None:
    assert isinstance(read_object(body), dict)


BAD = {
    "nothing": (b"", "the body is not JSON: "),
    "half": (b'{"a": ', "the body is not JSON: "),
    "a list": (b"[]", "the body must be a JSON object"),
    "bad UTF-8": (b'{"a": "\xff"}', "the body is not UTF-8: byte 7 is invalid"),
    "UTF-16": ("{}".encode("utf-16"), "the body is not UTF-8: byte 0 is invalid"),
    "NaN": (b'{"a": NaN}', "the body is not JSON: NaN is not a number"),
    "infinity": (b'{"a": 1e999}', "the body is not JSON: 1e999 is not a number"),
    "a long number": (b'{"a": ' + b"9" * 101 + b"}", "the body is not JSON: a number of 101 digits is too long"),
    "too long a number": (
        b'{"a": ' + b"9" * 100_000 + b"}",
        "the body is not JSON: a number of 100000 digits is too long",
    ),
    "deep": (nested(64), "the body is nested more than 64 deep"),
    "deeper": (nested(100_000), "the body is nested more than 64 deep"),
    "deep objects": (b'{"a":' * 65 + b"1" + b"}" * 65, "the body is nested more than 64 deep"),
    "many values": (b'{"a": [' + b"[]," * 1_000_000 + b"[]]}", "the body has more than 2,000,000 values"),
}


@pytest.mark.parametrize(("body", "said"), BAD.values(), ids=BAD.keys())
def test_others_are_refused(body: bytes, said: str) -> None:
    with pytest.raises(BadBodyError) as caught:
        read_object(body)

    assert str(caught.value).startswith(said)
