"""A request that the gateway itself refuses."""

from __future__ import annotations


class Refused(Exception):
    """An HTTP status and one sentence; `ClientApi.error` puts them into the shape of the client's API."""

    def __init__(self, status: int, sentence: str, code: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code


def inexpressible(what: str) -> Refused:
    """Returns the refusal of something that Chat Completions cannot express."""
    return Refused(
        400, f"{what} cannot be expressed in Chat Completions, which the engine speaks", "unsupported_parameter"
    )
