"""Who may use a service that is offered over HTTP: named tokens, from the environment alone."""

from __future__ import annotations

import hashlib
import hmac

from rollout_tasks.errors import UserError

VARIABLE = "ROLLOUT_SERVICE_TOKENS"
SHORTEST_TOKEN = 16
"""Characters; a shorter one could be guessed."""


class ServiceTokens:
    """The tokens, of which only digests are kept."""

    def __init__(self, text: str) -> None:
        """Reads ``NAME:TOKEN``, several of them with blanks between.

        Raises:
            UserError: There is none, or one has no name, is too short or cannot be sent in a header. No token is quoted.
        """
        self._digests: dict[str, bytes] = {}
        for number, entry in enumerate(text.split(), start=1):
            name, colon, token = entry.partition(":")
            if not name.isprintable() or not name or not colon or not token:
                raise UserError(f"{VARIABLE}: entry {number} must be NAME:TOKEN")
            if len(token) < SHORTEST_TOKEN:
                raise UserError(f"{VARIABLE}: the token of {name!r} must have at least {SHORTEST_TOKEN} characters")
            if not token.isascii() or not token.isprintable():
                raise UserError(f"{VARIABLE}: the token of {name!r} must be printable ASCII")
            if "," in token:
                raise UserError(f"{VARIABLE}: the token of {name!r} has a comma: there are blanks between entries")
            digest = hashlib.sha256(token.encode()).digest()
            if name in self._digests or digest in self._digests.values():
                raise UserError(f"{VARIABLE}: {name!r}, or its token, is there twice")
            self._digests[name] = digest
        if not self._digests:
            raise UserError(
                f"{VARIABLE} is not set: whoever uses the service needs a token, as in"
                f' export {VARIABLE}="alice:$(openssl rand -hex 24)"'
            )

    def name_of(self, token: bytes) -> str | None:
        """Returns whose token this is; None if it is nobody's. Takes the same time for every wrong one."""
        given = hashlib.sha256(token).digest()
        found = None
        for name, digest in self._digests.items():
            if hmac.compare_digest(given, digest):
                found = name
        return found
