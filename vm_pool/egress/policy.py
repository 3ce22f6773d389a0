"""Which hosts a guest may reach."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from vm_pool.egress.addresses import is_public

_NAME = re.compile(r"(\*\.)?(?!-)([a-z0-9_-]{1,63}\.)+(?!0x)(?=[a-z0-9_-]*[a-z])[a-z0-9_-]{1,63}")
"""With a dot, as all internet names have, and not ending in a number, as addresses may be written that way, too."""
_LONGEST_NAME = 253
_SHOWN_CHARACTERS = 80
"""Of a wrong name, in an error message."""
NONE, INTERNET = "none", "internet"


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """The meaning of ``none``, ``internet`` or a list of hosts."""

    hosts: tuple[str, ...] = ()
    """Names, as ``example.org`` or ``*.example.org`` for all names below it, and public IPv4 addresses."""
    everything: bool = False

    @property
    def reaches_anything(self) -> bool:
        """Whether the guest may reach any host."""
        return self.everything or bool(self.hosts)

    def allows(self, host: str) -> bool:
        """Whether the policy allows a name or an address, provided that it is public."""
        if self.everything:
            return True
        host = host.lower().rstrip(".")
        return any(host == known or (known.startswith("*.") and host.endswith(known[1:])) for known in self.hosts)

    def __str__(self) -> str:
        return INTERNET if self.everything else ",".join(self.hosts) or NONE


def parse_policy(text: str) -> NetworkPolicy:
    """Returns the policy that a user asked for.

    Args:
        text: ``none``, ``internet``, or hosts separated by commas.

    Raises:
        ValueError: It is not one of these, or names a host that can never be reached; the message says which.
    """
    words = [word.strip().lower().rstrip(".") for word in text.split(",")]
    if words == [NONE]:
        return NetworkPolicy()
    if words == [INTERNET]:
        return NetworkPolicy(everything=True)
    for word in words:
        _check_host(word)
    return NetworkPolicy(tuple(sorted(set(words))))


def _check_host(word: str) -> None:
    try:
        address = ipaddress.ip_address(word)
    except ValueError:
        if len(word) > _LONGEST_NAME or _NAME.fullmatch(word) is None:
            shown = word if len(word) <= _SHOWN_CHARACTERS else word[: _SHOWN_CHARACTERS - 3] + "..."
            raise ValueError(
                f"{shown!r} is not a host: say none, internet, or hosts as in pypi.org,*.pythonhosted.org"
            ) from None
    else:
        if address.version != 4:
            raise ValueError(f"{word!r} cannot be reached: guests have no IPv6; say its name or its IPv4 address")
        if not is_public(word):
            raise ValueError(f"{word!r} is not on the internet: guests never reach private or reserved addresses")


PolicyText = Annotated[str, AfterValidator(lambda text: str(parse_policy(text)))]
"""A policy as an option's value: checked, and always written the same way."""
