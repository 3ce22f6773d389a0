"""Which hosts a guest may reach."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

_NAME = re.compile(r"(\*\.)?(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
NONE, INTERNET = "none", "internet"


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """What ``none``, ``internet`` or a list of hosts means."""

    hosts: tuple[str, ...] = ()
    """Names, as ``example.org`` or ``*.example.org`` for all below it, and addresses."""
    everything: bool = False

    @property
    def reaches_anything(self) -> bool:
        """Whether there is a way out at all."""
        return self.everything or bool(self.hosts)

    def allows(self, host: str) -> bool:
        """Whether a name or an address may be connected to, if it is public."""
        if self.everything:
            return True
        host = host.lower().rstrip(".")
        return any(host == known or (known.startswith("*.") and host.endswith(known[1:])) for known in self.hosts)

    def __str__(self) -> str:
        return INTERNET if self.everything else ",".join(self.hosts) or NONE


def parse_policy(text: str) -> NetworkPolicy:
    """The policy that a user asked for.

    Args:
        text: ``none``, ``internet``, or hosts with commas between.

    Raises:
        ValueError: It is none of these; names the host that is none.
    """
    words = [word.strip().lower().rstrip(".") for word in text.split(",")]
    if words == [NONE]:
        return NetworkPolicy()
    if words == [INTERNET]:
        return NetworkPolicy(everything=True)
    for word in words:
        if not _is_host(word):
            raise ValueError(f"{word!r} is no host: say none, internet, or hosts as in pypi.org,*.pythonhosted.org")
    return NetworkPolicy(tuple(sorted(set(words))))


def _is_host(word: str) -> bool:
    try:
        ipaddress.ip_address(word)
        return True
    except ValueError:
        return len(word) <= 253 and word not in {NONE, INTERNET} and _NAME.fullmatch(word) is not None


PolicyText = Annotated[str, AfterValidator(lambda text: str(parse_policy(text)))]
"""A policy as an option has it, checked, always written the same way."""
