"""A web page in the guest's own Chromium that tries to use the control server, directly and through a relay of root's."""

from __future__ import annotations

import shlex
import time

import pytest

from tests.desktops import needs_local_desktops
from tests.integration.desktop_image.conftest import Desktop

pytestmark = [needs_local_desktops, pytest.mark.slow, pytest.mark.timeout(1800)]  # its image takes minutes to build

PROFILE = "browser"
SECONDS = 120.0
RELAY_PORT = 5001
RELAY = f"""
import random, re, socket, threading
def whole_request(near):
    request = b""
    while part := near.recv(65536):
        request += part
        head, blank, body = request.partition(b"\\r\\n\\r\\n")
        length = re.search(rb"(?i)\\r\\ncontent-length: *([0-9]+)", head)
        if blank and len(body) >= (int(length[1]) if length else 0):
            break
    return request
def connected():
    while True:
        try:
            return socket.create_connection(("127.0.0.1", 5000), 30, ("127.0.0.1", random.randrange(600, 1023)))
        except OSError:  # that port has just been used
            pass
def serve(near):
    request = whole_request(near)
    with connected() as far:
        far.sendall(request)
        answer = b""
        far.settimeout(1)
        try:
            while part := far.recv(65536):
                answer += part
        except TimeoutError:
            pass
    if b"curl" not in request:
        open("/tmp/relayed", "ab").write(request.split(b"\\r\\n")[0] + b" -> " + answer.split(b"\\r\\n")[0] + b"\\n")
    near.sendall(answer)
    near.close()
listener = socket.create_server(("127.0.0.1", {RELAY_PORT}))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
"""
"""Comes from a port of root's, as the guest's host does: what it lets through is the browser's request as it is."""
PAGE = """
<title>waiting</title>
<body><script>
const command = JSON.stringify({command: "touch /home/user/done", shell: true});
const form = new FormData(); form.append("file_path", "/home/user/done"); form.append("file_data", new Blob(["x"]), "x");
const later = new Promise(done => setTimeout(done, 3000));
async function tryAll() {
  let got = [];
  for (const server of ["http://127.0.0.1:5000", "http://localhost:5000", "http://127.0.0.1:5001", "http://localhost:5001",
                        "http://rebound.example:5001"]) {
    for (const [path, options] of [
      ["/execute", {method: "POST", mode: "no-cors", body: command}],
      ["/execute", {method: "POST", mode: "no-cors", headers: {"Content-Type": "text/plain"}, body: command}],
      ["/execute", {method: "POST", mode: "cors", headers: {"Content-Type": "application/json"}, body: command}],
      ["/setup/upload", {method: "POST", mode: "no-cors", body: form}],
      ["/platform", {mode: "no-cors"}],
      ["/platform", {mode: "cors"}],
      ["/platform", {mode: "no-cors", referrerPolicy: "no-referrer", credentials: "omit"}],
    ]) {
      try { got.push(await (await fetch(server + path, options)).text()); } catch (error) { }
    }
    const image = new Image();
    image.onload = () => got.push("picture");
    image.src = server + "/screenshot?" + Math.random();
    const frame = document.createElement("iframe"); frame.src = server + "/platform"; document.body.append(frame);
    const asked = document.createElement("form");
    const target = document.createElement("iframe"); target.name = "target" + server; document.body.append(target);
    asked.action = server + "/execute"; asked.method = "POST"; asked.enctype = "text/plain"; asked.target = target.name;
    asked.innerHTML = `<input name='{"command": "touch /home/user/done", "shell": true, "x": "' value='"}'>`;
    document.body.append(asked); asked.submit();
    navigator.sendBeacon(server + "/execute", command);
    try { new WebSocket(server.replace("http", "ws") + "/platform"); } catch (error) { }
  }
  await later;
  document.title = "tried: " + got.filter(one => one).join(",");
}
tryAll();
</script>
"""


def test_a_page_gets_nothing_and_does_nothing(desktop: Desktop) -> None:
    desktop.shell(
        f"mkdir -p ~/site; printf %s {shlex.quote(PAGE)} >~/site/page.html; printf %s {shlex.quote(RELAY)} >~/relay.py"
    )
    desktop.shell("echo password | sudo -S sh -c 'echo 127.0.0.1 rebound.example >>/etc/hosts'")
    desktop.launch("echo password | sudo -S python3 /home/user/relay.py")
    desktop.launch("python3 -m http.server 8000 --bind 127.0.0.1 --directory /home/user/site")
    desktop.shell(
        "timeout 60 sh -c 'until curl -s 127.0.0.1:8000 && curl -s 127.0.0.1:5001/platform; do sleep 0.1; done'"
    )
    assert desktop.shell("curl -s http://127.0.0.1:5001/platform") == "Linux", "the relay leads to the server"

    desktop.launch("google-chrome http://127.0.0.1:8000/page.html")
    deadline = time.monotonic() + SECONDS
    while not (tried := [title for title in desktop.windows() if title.startswith("tried:")]):
        assert time.monotonic() < deadline, desktop.windows()
        time.sleep(0.5)

    assert tried[0].split(" - ")[0].rstrip() in ("tried:", "tried"), tried
    relayed = desktop.shell("cat /tmp/relayed").splitlines()
    assert len(relayed) > 10, relayed
    assert [line for line in relayed if " 403 " not in line] == []
    assert desktop.shell("ls /home/user/done") == "ls: cannot access '/home/user/done': No such file or directory\n"

    rebound = "timeout 20 /usr/lib/guest/google-chrome --headless --user-data-dir=/tmp/other --dump-dom"
    assert "reached as localhost" in desktop.shell(f"{rebound} http://rebound.example:5001/platform 2>/dev/null")
    assert ">Linux<" not in desktop.shell(f"{rebound} http://127.0.0.1:5001/platform 2>/dev/null")
