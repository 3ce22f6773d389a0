"""A network namespace that plays the internet, with a desktop in it: small_internet.py POLICY < URLS > WHAT CAME

Every address leads to this process, private ones and the host's own among them; whoever is connected to is written down. Run it in
network and mount namespaces of its own (unshare --net --mount): nothing of it is seen outside.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from vm_pool.own import own_vm
from vm_pool.providers.local import LocalProvider

OWN_PUBLIC = "151.101.7.7"
"""An address of the internet that is this machine's own."""
NETWORKS = ("0.0.0.0/0",)
NETWORKS_V6 = ("::/0",)
PUBLIC, PUBLIC_V6 = "93.184.216.34", "2606:2800:220:1::1"
ZONE: dict[str, list[str]] = {
    "public.example": [PUBLIC],
    "allowed.example": ["93.184.216.40"],
    "below.wide.example": ["93.184.216.41"],
    "six.example": [PUBLIC_V6],
    "mixed.example": ["10.1.2.3", "93.184.216.35"],
    "private.example": ["10.1.2.3"],
    "loopback.example": ["127.0.0.1"],
    "link.example": ["169.254.169.254"],
    "carrier.example": ["100.64.1.1"],
    "mapped.example": ["::ffff:10.1.2.3"],
    "nat64.example": ["64:ff9b::a01:203"],
    "sixtofour.example": ["2002:a01:203::1"],
    "unique.example": ["fd00::1"],
    "own.example": [OWN_PUBLIC],
    "azure.example": ["168.63.129.16"],
    "zero.example": ["0.0.0.0"],  # noqa: S104
    "benchmark.example": ["198.18.0.1"],
}
REBINDING = "rebind.example"
"""Public when asked for the first time, private ever after."""
IN_GUEST = """
import json, sys, urllib.request
urllib.request.install_opener(urllib.request.build_opener(urllib.request.ProxyHandler({})))
came = {}
for url in json.load(sys.stdin):
    try:
        came[url] = urllib.request.urlopen(url, timeout=8).read().decode()
    except Exception as error:
        came[url] = 'error: ' + repr(error)[:200]
print(json.dumps(came))
"""


class Names(threading.Thread):
    """The DNS server."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        self.rebound = count()

    def run(self) -> None:
        """Answers for ever."""
        while True:
            query, sender = self.socket.recvfrom(4096)
            asked = dns.message.from_wire(query)
            name = asked.question[0].name.to_text(omit_final_dot=True).lower()
            reply = dns.message.make_response(asked)
            reply.flags |= dns.flags.RA
            kind = dns.rdatatype.to_text(asked.question[0].rdtype)
            for address in self.addresses(name, kind):
                if (":" in address) == (kind == "AAAA"):
                    reply.answer.append(dns.rrset.from_text(asked.question[0].name, 1, "IN", kind, address))
            if not reply.answer and name not in ZONE and name != REBINDING:
                reply.set_rcode(dns.rcode.NXDOMAIN)
            self.socket.sendto(reply.to_wire(), sender)

    def addresses(self, name: str, kind: str) -> list[str]:
        """What a name means now."""
        if name == REBINDING and kind == "A":
            return [PUBLIC if next(self.rebound) == 0 else "10.9.9.9"]
        return ZONE.get(name, [])


class Web(BaseHTTPRequestHandler):
    """Every web server there is."""

    reached: list[str] = []  # noqa: RUF012 (one for all)

    def do_GET(self) -> None:
        """Says which address was reached, or sends elsewhere."""
        self.reached.append(self.connection.getsockname()[0])
        elsewhere = parse_qs(urlsplit(self.path).query).get("to")
        self.send_response(302 if elsewhere else 200)
        if elsewhere:
            self.send_header("Location", elsewhere[0])
        body = self.connection.getsockname()[0].encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class Web6(ThreadingHTTPServer):
    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        """Without IPv4, which has a server of its own."""
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()


@contextmanager
def internet() -> Iterator[None]:
    """This namespace as the whole internet."""
    lines = ["link set lo up", f"address add {OWN_PUBLIC}/32 dev lo"]
    lines += [f"route add local {network} dev lo" for network in NETWORKS]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)
    for network in NETWORKS_V6:
        subprocess.run(["ip", "-6", "route", "add", "local", network, "dev", "lo"], check=True)
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as resolver:
        resolver.write("nameserver 127.0.0.1\noptions timeout:2 attempts:1\n")
        resolver.flush()
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "--bind", resolver.name, "/etc/resolv.conf"], check=True)
        Names().start()
        for server in (ThreadingHTTPServer(("0.0.0.0", 80), Web), Web6(("::", 80), Web)):  # noqa: S104
            threading.Thread(target=server.serve_forever, daemon=True).start()
        yield


def from_guest(provider: LocalProvider, vm_id: str, urls: list[str]) -> dict[str, str]:
    """What a guest gets of each URL."""
    said: dict[str, str] = {}
    for url in urls:
        connection = http.client.HTTPConnection("guest", timeout=100)
        connection.sock = provider.connect(vm_id, "control")
        connection.sock.settimeout(100)
        command = f"python3 - <<'END'\nimport io, sys\nsys.stdin = io.StringIO({json.dumps([url])!r})\n{IN_GUEST}\nEND"
        body = json.dumps({"command": command, "shell": True})
        connection.request("POST", "/execute", body, {"Content-Type": "application/json"})
        said |= json.loads(json.loads(connection.getresponse().read())["output"])
        connection.close()
    return said


def main() -> None:
    """Boots a desktop under the policy and has it ask for each URL."""
    urls = json.load(sys.stdin)
    policy = sys.argv[1]
    vm_id = f"small-internet-{os.getpid()}-0"
    came: dict[str, Any] = {}
    with internet():
        provider = LocalProvider({"guest_network": policy, "screen_width": 640, "screen_height": 480})
        provider.check_available()
        with own_vm(provider, vm_id):
            for url in urls:
                Web.reached.clear()
                answer = from_guest(provider, vm_id, [url])[url]
                came[url] = {"answer": answer, "reached": list(Web.reached)}
    json.dump(came, sys.stdout)


if __name__ == "__main__":
    main()
