"""Reads the body of a response from a model or a judge, within a limit of size, because endpoints are not trusted."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2

_GZIP = zlib.MAX_WBITS | 16
_KNOWN = frozenset({"br", "compress", "deflate", "zstd"})
"""Encodings that are named in errors; anything else could be a secret that the endpoint sends back."""


class UnreadableBodyError(ValueError):
    """A body that is too large, or compressed in a way not asked for; the message completes "the endpoint answered"."""


def read_text(response: httpx2.Response, largest: int) -> str:
    """Returns the body as text; JSON is UTF-8 whatever charset the headers name.

    Args:
        response: A response of which only the headers were read; its request's `Deadline` counts for the body, too.
        largest: The most bytes, decompressed.

    Raises:
        UnreadableBodyError: It is larger, or compressed in a way not asked for.
        TooSlowError, httpx2.TimeoutException: It does not end in time.
        httpx2.HTTPError: The connection fails.
    """
    body = bytearray()
    unpack = _unpacking(response.headers.get("content-encoding", ""))
    for piece in response.iter_raw():
        body += unpack(piece, largest + 1 - len(body))
        if len(body) > largest:
            raise UnreadableBodyError(f"with more than {largest >> 20} MiB")
    return body.decode("utf-8-sig", "replace")


def _unpacking(encoding: str) -> Callable[[bytes, int], bytes]:
    """Decompresses piece by piece, never to more bytes than asked for."""
    name = encoding.strip().lower()
    if name in {"", "identity"}:
        return lambda piece, _most: piece
    if name not in {"gzip", "x-gzip"}:
        which = f"the encoding {name!r}, which" if name in _KNOWN else "an encoding that"
        raise UnreadableBodyError(f"in {which} was not asked for")
    unpacker = zlib.decompressobj(_GZIP)

    def unpack(piece: bytes, most: int) -> bytes:
        try:
            return unpacker.decompress(piece, most)
        except zlib.error as error:
            raise UnreadableBodyError(f"with a body that is not gzip: {error}") from error

    return unpack
