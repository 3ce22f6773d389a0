"""The options of the provider `remote`, and the token that it sends, which only the environment has."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

TOKEN_VARIABLE = "ROLLOUT_DESKTOPS_TOKEN"  # noqa: S105 (the name of a variable)
_SENDABLE = re.compile(r"[!-~]*")


class RemoteOptions(BaseModel):
    """Where desktops are lent, and how long to wait for them."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    url: str
    """The service, as in ``https://desktops.example:8770``."""
    through_service: bool = False
    """Whether the desktops' ports are reached through the service's own, as from machines that reach nothing else there. For this
    project's service; needs the package websockets."""
    start_seconds: float = Field(600.0, gt=0, le=86_400)
    """How long to wait for a desktop, while the service starts it or lends all of the token's to others."""
    call_seconds: float = Field(60.0, gt=0, le=3_600)
    """How long any other request may take."""

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            raise ValueError(f"must have no user or password: the token comes from {TOKEN_VARIABLE}")
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("must look like https://HOST:PORT")
        _ = parts.port  # raises a ValueError if it is none
        return url.rstrip("/")

    @property
    def host(self) -> str:
        """The host of the service, where its desktops' ports are."""
        return str(urlsplit(self.url).hostname)


def token() -> str:
    """Returns the token for the service; empty if none is set.

    Raises:
        ValueError: It cannot be sent in a header; the message does not contain it.
    """
    text = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not _SENDABLE.fullmatch(text):
        raise ValueError(f"{TOKEN_VARIABLE} has letters or blanks that no token has")
    return text
