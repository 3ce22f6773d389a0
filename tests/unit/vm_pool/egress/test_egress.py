"""What a guest's way out is decided by: addresses, policies, and what its DNS is told."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import psutil
import pytest

from vm_pool.egress import addresses, dns_answers, policy
from vm_pool.egress.addresses import NotPublic, Unresolved, is_public, public_addresses, resolved
from vm_pool.egress.dns_answers import StandIns, answer


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "93.184.216.34",
        "2606:4700::1111",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
        "2002:101:101::1",
        "168.63.129.17",
    ],
)
def test_addresses_of_the_internet(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    """0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.127.255.255 127.0.0.1 127.255.0.1 168.63.129.16 169.254.169.254 172.16.0.1
    172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1
    224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 :: ::1 ::10.0.0.1 ::1.1.1.1 ::ffff:10.0.0.1 ::ffff:127.0.0.1
    64:ff9b::a00:1 64:ff9b::7f00:1 64:ff9b:1::101:101 100::1 2001::1 2001:db8::1 2002:a00:1::1 2002:7f00:1::1 3fff::1
    5f00::1 fc00::1 200::1 400::1 4000::1 8000::1 e000::1 fe00::1 1::1 64:ff9b:0:1::1 ::ffff:0:101:101 fd00:ec2::254 fe80::1
    fe80::1%eth0 fec0::1 ff02::1 2606:4700::1111%eth0 localhost 10 0x7f.1 1.1.1""".split(),  # noqa: SIM905
)
def test_all_others(address: str) -> None:
    assert not is_public(address)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The addresses that this machine's interfaces have, which can change."""
    found = {"1.1.1.1", "2606:4700::1111", "fe80::1%eth0"}

    def interfaces() -> dict[str, list[Any]]:
        return {"eth0": [SimpleNamespace(address=address) for address in (*found, "02:42:ac:11:00:02")]}

    monkeypatch.setattr(psutil, "net_if_addrs", interfaces)
    addresses._own_addresses.cache_clear()
    yield found
    addresses._own_addresses.cache_clear()


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::7", "2606:4700::1111", "2606:4700:0:0::1111"],
)
def test_this_machines_own_public_address_is_none_however_it_is_written(own: set[str], address: str) -> None:
    assert own
    assert not is_public(address)
    assert is_public("1.1.1.2")


def test_an_address_that_this_machine_gets_later_is_its_own(own: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert is_public("9.9.9.9")
    own.add("9.9.9.9")
    now += addresses.OWN_SECONDS

    assert not is_public("9.9.9.9")


def test_of_a_hosts_addresses_the_public_ones_count() -> None:
    assert public_addresses("a", lambda _name: ["10.0.0.1", "1.1.1.1", "::1", "1.1.1.1"]) == ["1.1.1.1"]
    with pytest.raises(NotPublic, match="a has no address on the internet"):
        public_addresses("a", lambda _name: ["10.0.0.1"])

    def unknown(_name: str) -> list[str]:
        raise socket.gaierror("nobody knows it")

    with pytest.raises(NotPublic, match="a has no address: nobody knows it"):
        public_addresses("a", unknown)


def test_a_name_is_not_waited_for_longer_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()

    def getaddrinfo(*_: object, **_options: object) -> list[object]:
        answers.wait(30)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    with pytest.raises(Unresolved, match=r"^slow\.example has no address: the resolver does not answer") as raised:
        public_addresses("slow.example", lambda host: resolved(host, 0.1))
    answers.set()

    assert raised.value.for_now


def test_policies() -> None:
    assert str(policy.parse_policy("none")) == "none"
    assert not policy.parse_policy("none").reaches_anything
    assert not policy.parse_policy("none").allows("a.org")
    assert policy.parse_policy("internet").allows("a.org")

    some = policy.parse_policy("B.org., a.org,*.wide.org,1.1.1.1")
    assert str(some) == "*.wide.org,1.1.1.1,a.org,b.org"
    assert all(map(some.allows, ("a.org", "A.ORG.", "b.org", "x.wide.org", "y.x.wide.org", "1.1.1.1")))
    assert not any(map(some.allows, ("x.a.org", "wide.org", "xwide.org", "org", "1.1.1.2", "")))


@pytest.mark.parametrize(
    "text",
    [
        *("", "a b", "none,a.org", "internet,a.org", "http://a.org", "a.org/", "*", "*.", "a..b", "-a.org", "a.org:80"),
        *(
            "interent",
            "all",
            "true",
            "localhost",
            "com",
            "*.com",
            "1.1.1",
            "127.1",
            "010.8.8.8",
            "256.1.1.1",
            "*.1.1.1",
        ),
        *("a.0x7f", "0x7f.1", "a.1", "1.1.1.1/8", "a" * 64 + ".org", ".".join(["abc"] * 64)),
    ],
)
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a host: say none, internet, or hosts"):
        policy.parse_policy(text)


@pytest.mark.parametrize("text", ["10.0.0.1", "127.0.0.1", "169.254.169.254", "0.1.2.3", "a.org,192.168.1.5"])
def test_what_is_never_reached_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^'[0-9.]+' is not on the internet: guests never reach private"):
        policy.parse_policy(text)


@pytest.mark.parametrize("text", ["2606:4700::1111", "::1", "::ffff:1.1.1.1", "a.org,2606:2800:220:1::1"])
def test_guests_have_no_ipv6(text: str) -> None:
    with pytest.raises(ValueError, match=r"^'[0-9a-f:.]+' cannot be reached: guests have no IPv6"):
        policy.parse_policy(text)


def test_each_name_has_an_address_of_its_own() -> None:
    stand_ins = StandIns(kept=2)
    first, second = stand_ins.address_of("a"), stand_ins.address_of("b")

    assert first != second
    assert stand_ins.address_of("a") == first
    third = stand_ins.address_of("c")  # b was asked for longest ago
    assert [stand_ins.name_of(one) for one in (first, second, third)] == ["a", None, "c"]
    assert not is_public(first)


def test_addresses_are_used_again_when_all_were() -> None:
    stand_ins = StandIns(kept=1)
    given = {stand_ins.address_of(str(number)) for number in range(dns_answers.NETWORK.num_addresses + 5)}

    assert len(given) == dns_answers.NETWORK.num_addresses - 2


ANSWER = dns.message.make_response(dns.message.make_query("a", "A")).to_wire()


def asked(name: str, kind: str, find: Callable[[str], str | None]) -> dns.message.Message:
    reply = answer(dns.message.make_query(name, kind).to_wire(), find)
    assert reply is not None
    return dns.message.from_wire(reply)


def test_names_are_answered() -> None:
    reply = asked("A.org", "A", lambda name: "198.18.0.1" if name == "a.org" else None)
    assert [str(one) for one in reply.answer[0]] == ["198.18.0.1"]
    assert asked("a.org", "AAAA", lambda _name: "198.18.0.1").answer == []
    assert asked("a.org", "AAAA", lambda _name: "198.18.0.1").rcode() == dns.rcode.NOERROR
    assert asked("b.org", "A", lambda _name: None).rcode() == dns.rcode.NXDOMAIN


def test_a_dot_inside_a_label_is_no_name_below_a_listed_one() -> None:
    reply = asked("x\\.wide.org", "A", lambda _name: "198.18.0.1")
    assert (reply.answer, reply.rcode()) == ([], dns.rcode.NXDOMAIN)


def test_a_question_with_options_is_answered() -> None:
    query = dns.message.make_query("a", "A", use_edns=0, payload=4096).to_wire()
    assert answer(query, lambda _name: "198.18.0.1") is not None


def loaded(section: str) -> bytes:
    """A question with a record besides."""
    query = dns.message.make_query("a", "A")
    getattr(query, section).append(dns.rrset.from_text("b.", 1, "IN", "CNAME", "c."))
    return query.to_wire()


@pytest.mark.parametrize("section", ["answer", "authority", "additional"])
def test_records_in_a_question_are_not_read(section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of compressed names are seconds of work for whoever reads them."""
    read: list[bytes] = []
    monkeypatch.setattr(dns.message, "from_wire", lambda wire, **_: read.append(wire))

    assert answer(loaded(section), lambda _name: "198.18.0.1") is None
    assert answer(dns.message.make_query("a", "A").to_wire() + bytes(600), lambda _name: "198.18.0.1") is None
    assert read == []


@pytest.mark.parametrize(
    "query",
    [b"", b"x" * 11, b"\0" * 12, b"\xff" * 600, ANSWER],
    ids=["empty", "short", "zeros", "ones", "an answer"],
)
def test_what_is_no_question_gets_no_answer(query: bytes) -> None:
    assert answer(query, lambda _name: "198.18.0.1") is None
