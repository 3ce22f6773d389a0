"""A network namespace that plays the internet, with a desktop in it: small_internet.py PROVIDER POLICY VM_ID < URLS > WHAT CAME

With `downloads` in place of the three, the URLs are downloaded as tasks' files are, by this process itself; with `requests`,
they are asked for as desktop-env does, and with `visits` as web runs do.

In place of a URL, HOLD has the guest connect and stay so, RESET resets it; what came is then how many connections are open.

Every address leads to this process, private ones and the host's own among them; whoever is connected to is written down. Run it in
network and mount namespaces of its own (unshare --net --mount): nothing of it is seen outside.
"""

from __future__ import annotations

import datetime
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from benchmark.deadline import Deadline
from rollout_tasks.environments.osworld import downloads
from rollout_tasks.environments.osworld.vm_client import REQUESTS
from rollout_tasks.environments.web.download import download as page_download
from rollout_tasks.environments.web.download import page_url
from rollout_tasks.environments.web.refusal import Refused
from vm_pool.providers.base import ReachesVMs, check_available, load_provider
from vm_pool.unpooled import unpooled_vm

OWN_PUBLIC = "151.101.7.7"
"""An address of the internet that is this machine's own."""
NETWORKS = ("0.0.0.0/0",)
NETWORKS_V6 = ("::/0",)
PUBLIC, PUBLIC_V6 = "93.184.216.34", "2606:2800:220:1::1"
ZONE: dict[str, list[str]] = {
    "public.example": [PUBLIC],
    "same.example": [PUBLIC],
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
CERTIFIED = "public.example"
"""Whose certificate every server shows that is asked by HTTPS."""
DOWNLOADS, REQUESTED, VISITED = "downloads", "requests", "visits"
HOLD, RESET = "hold", "reset"
HOLDING = f"setsid python3 -c 'import socket, time; s = socket.create_connection((\"{PUBLIC}\", 80)); time.sleep(600)'"
OPEN_SECONDS = 60
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
    """Every web server there is; a connection stays open for more requests, where the client wants that."""

    protocol_version = "HTTP/1.1"
    reached: list[str] = []  # noqa: RUF012 (one for all)
    connections: set[Any] = set()  # noqa: RUF012

    def setup(self) -> None:
        """Takes note of a connection."""
        super().setup()
        self.connections.add(self)

    def finish(self) -> None:
        """It has ended."""
        self.connections.discard(self)
        super().finish()

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


class SecureWeb(ThreadingHTTPServer):
    """As `Web`, by HTTPS; each connection shakes hands in its own thread."""

    def __init__(self, certificate: Path) -> None:
        super().__init__(("0.0.0.0", 443), Web)  # noqa: S104
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, *_: Any) -> None:
        """Whoever does not like the certificate goes away."""


def write_certificate(path: Path) -> None:
    """A certificate and its key, which vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, CERTIFIED)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(CERTIFIED)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, *form) + certificate.public_bytes(serialization.Encoding.PEM)
    )


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


def from_guest(provider: ReachesVMs, vm_id: str, url: str) -> str:
    """What a guest gets of a URL."""
    command = f"python3 - <<'END'\nimport io, sys\nsys.stdin = io.StringIO({json.dumps([url])!r})\n{IN_GUEST}\nEND"
    said: dict[str, str] = json.loads(in_guest(provider, vm_id, command))
    return said[url]


def in_guest(provider: ReachesVMs, vm_id: str, command: str) -> str:
    """What a command prints in the guest."""
    connection = http.client.HTTPConnection("localhost", timeout=100)
    connection.sock = provider.connect(vm_id, "control")
    connection.sock.settimeout(100)
    body = json.dumps({"command": command, "shell": True})
    connection.request("POST", "/execute", body, {"Content-Type": "application/json"})
    output: str = json.loads(connection.getresponse().read())["output"]
    connection.close()
    return output


def open_connections(wanted: int) -> str:
    """How many there are; looks until there are as many as wanted, or for long enough."""
    deadline = time.monotonic() + OPEN_SECONDS
    while len(Web.connections) != wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    return str(len(Web.connections))


def download(urls: list[str], how: str) -> dict[str, Any]:
    """What comes of each URL when it is a task's file, what desktop-env asks for, or a page that an agent visits."""
    came: dict[str, Any] = {}
    downloads.FIRST_PAUSE = 0.01
    with internet(), tempfile.TemporaryDirectory() as folder:
        certificate = Path(folder, "certificate.pem")
        write_certificate(certificate)
        os.environ["SSL_CERT_FILE"] = str(certificate)
        threading.Thread(target=SecureWeb(certificate).serve_forever, daemon=True).start()
        cache = downloads.DownloadCache(Path(folder, "cache"))
        for url in urls:
            Web.reached.clear()
            try:
                if how == VISITED:
                    answer = page_download(page_url(url), Deadline(30), "reader", lambda _url: None).body.decode()
                else:
                    answer = cache.fetch(url).path.read_text() if how == DOWNLOADS else REQUESTS.get(url).text
            except (downloads.DownloadError, requests.RequestException, Refused) as error:
                answer = f"error: {error}"
            came[url] = {"answer": answer, "reached": list(Web.reached)}
    return came


def main() -> None:
    """Boots a desktop under the policy and has it ask for each URL."""
    urls = json.load(sys.stdin)
    if len(sys.argv) == 2:
        json.dump(download(urls, sys.argv[1]), sys.stdout)
        return
    name, policy, vm_id = sys.argv[1:]
    came: dict[str, Any] = {}
    with internet():
        provider = load_provider(name, {"guest_network": policy, "screen_width": 640, "screen_height": 480})
        assert isinstance(provider, ReachesVMs)
        check_available(provider)
        with unpooled_vm(provider, vm_id):
            for url in urls:
                Web.reached.clear()
                if url == HOLD:
                    in_guest(provider, vm_id, f"{HOLDING} >/dev/null 2>&1 &")
                    answer = open_connections(1)
                elif url == RESET:
                    provider.reset(vm_id)
                    answer = open_connections(0)
                else:
                    answer = from_guest(provider, vm_id, url)
                came[url] = {"answer": answer, "reached": list(Web.reached)}
    json.dump(came, sys.stdout)


if __name__ == "__main__":
    main()
