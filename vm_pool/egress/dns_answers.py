"""DNS for a guest: every name that it may reach gets its own stand-in address, which means only that name.

So the guest never learns a real address, cannot be redirected by an address that changes between two lookups, and can
only connect to what it asked for by name.
"""

from __future__ import annotations

import ipaddress
import struct
from collections import OrderedDict
from collections.abc import Callable

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

NETWORK = ipaddress.ip_network("198.18.0.0/15")
"""Reserved for network benchmarks: never on the internet."""
NAMES_KEPT = 4096
"""For each guest; the name that was asked for longest ago is dropped first."""
SECONDS = 60
"""How long the guest may cache an answer."""
LONGEST_QUESTION = 512
"""Bytes; a name has at most 255."""
_COUNTS = struct.Struct(">4xHHHH")
"""In a message's header: the numbers of questions, answers, authorities and additional records."""
_OPTIONS = b"\0" + dns.rdatatype.OPT.to_bytes(2, "big")
"""The first bytes of the only additional record that a question may have."""


class StandIns:
    """Addresses that stand for host names."""

    def __init__(self, kept: int = NAMES_KEPT) -> None:
        self._kept = kept
        self._names: OrderedDict[str, str] = OrderedDict()
        self._addresses: dict[str, str] = {}
        self._next = 0

    def address_of(self, name: str) -> str:
        """Returns the address that stands for a name from now on."""
        known = self._addresses.get(name)
        if known is None:
            if len(self._names) >= self._kept:
                _oldest, forgotten = self._names.popitem(last=False)
                del self._addresses[forgotten]
            known = self._free_address()
            self._names[known], self._addresses[name] = name, known
        self._names.move_to_end(known)
        return known

    def name_of(self, address: str) -> str | None:
        """Returns the name that an address stands for; None when it stands for no name."""
        return self._names.get(address)

    def _free_address(self) -> str:
        while True:
            self._next = self._next % (NETWORK.num_addresses - 2) + 1
            if (found := str(NETWORK[self._next])) not in self._names:
                return found


def answer(query: bytes, find: Callable[[str], str | None]) -> bytes | None:
    """Returns the answer to a DNS question; None when the message is not a question.

    Args:
        query: The message as received.
        find: Returns the address for a name; None when this guest has no such name.
    """
    if not _is_plain_question(query):
        return None
    try:
        parsed_query = dns.message.from_wire(query)
        if parsed_query.flags & dns.flags.QR or len(parsed_query.question) != 1:
            return None
        reply = dns.message.make_response(parsed_query, recursion_available=True)
        question = parsed_query.question[0]
        name = question.name.to_text(omit_final_dot=True).lower()
        found = None if "\\" in name else find(name)  # host names never need a backslash
        if found is None:
            reply.set_rcode(dns.rcode.NXDOMAIN)
        elif question.rdtype == dns.rdatatype.A and question.rdclass == dns.rdataclass.IN:
            reply.answer.append(dns.rrset.from_text(question.name, SECONDS, "IN", "A", found))
        return reply.to_wire()
    except (dns.exception.DNSException, ValueError):
        return None


def _is_plain_question(query: bytes) -> bool:
    """Whether a message has one question and nothing that is slow to parse: names may point into each other."""
    if not _COUNTS.size < len(query) <= LONGEST_QUESTION:
        return False
    questions, answers, authorities, others = _COUNTS.unpack_from(query)
    return (questions, answers, authorities) == (1, 0, 0) and (others == 0 or (others == 1 and _OPTIONS in query))
