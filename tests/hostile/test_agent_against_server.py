"""What an agent can do in a real desktop to the server that tells its score: nothing as the user, nothing unnoticed as root."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import signal
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.desktops import in_guest, needs_local_desktops, processes, traces
from tests.hostile.server_attacks import AS_USER, CLEAN_UP, INTERPRETER, SERVER, SESSION, as_root
from vm_pool.providers.guest_server import DesktopUnwell
from vm_pool.providers.local import LocalProvider

pytestmark = needs_local_desktops

VM = f"test-agent-{os.getpid()}-0"
SCREEN = (800, 600)
SECONDS = 60.0
WARM = "import pyautogui; print(tuple(pyautogui.size()))"


@pytest.fixture(scope="module")
def provider() -> Iterator[LocalProvider]:
    provider = LocalProvider(
        {"screen_width": SCREEN[0], "screen_height": SCREEN[1], "memory_mib": 3000, "disk_mib": 400}
    )
    provider.boot(VM)
    yield provider
    provider.stop(VM)
    assert traces(VM) == []


@pytest.fixture
def fresh(provider: LocalProvider) -> LocalProvider:
    """A desktop in which nothing has happened yet."""
    provider.reset(VM)
    provider.check(VM)
    return provider


def ask(provider: LocalProvider, method: str, path: str, content: Any = None, *, form: str = "") -> bytes:
    """What the server answers."""
    client = http.client.HTTPConnection("localhost")
    client.sock = provider.connect(VM, "control")
    client.sock.settimeout(SECONDS)
    kind = "application/x-www-form-urlencoded" if form else "application/json"
    client.request(method, path, form or (json.dumps(content) if content else None), {"Content-Type": kind})
    reply = client.getresponse()
    answer = reply.read()
    client.close()
    assert reply.status == 200, answer
    return answer


def run(provider: LocalProvider, command: str | list[str]) -> str:
    """What a command prints."""
    done = json.loads(ask(provider, "POST", "/execute", {"command": command, "shell": isinstance(command, str)}))
    return str(done["output"] + done["error"])


def answers(provider: LocalProvider) -> dict[str, object]:
    """What the server says of a desktop that is in order, in each of its ways."""
    picture = ask(provider, "GET", "/screenshot")
    tree = json.loads(ask(provider, "GET", "/accessibility"))["AT"]
    return {
        "platform": ask(provider, "GET", "/platform"),
        "command": run(provider, "id; pwd; env | sort"),
        "program": run(provider, ["id", "-un"]),
        "script": json.loads(ask(provider, "POST", "/run_bash_script", {"script": "id -un; echo $0 $PPID >/dev/null"})),
        "action": run(provider, ["python", "-c", WARM]),
        "file": ask(provider, "POST", "/file", form="file_path=/etc/os-release"),
        "screenshot": struct.unpack_from(">II", picture, 16),
        "tree": "xfce4-panel" in tree,
        "healthy": json.loads(ask(provider, "GET", "/health"))["failed"],
    }


def who_answers(provider: LocalProvider) -> list[str]:
    """Process id and start time of the server, and of what it runs actions in."""
    return [
        run(provider, f"cut -d' ' -f1,22 /proc/{process}/stat").strip() for process in (SESSION, SERVER, INTERPRETER)
    ]


def outside(command: str) -> list[int]:
    """The guest's processes with a command like this, as the machine numbers them."""
    found = []
    for pid in processes(VM):
        with suppress(OSError):  # it has ended
            if command in Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " "):
                found.append(pid)
    return found


@pytest.fixture(scope="module")
def in_order(provider: LocalProvider) -> dict[str, object]:
    """The answers, and who gave them."""
    provider.check(VM)
    return answers(provider) | {"who": who_answers(provider)}


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(one, id=name, marks=[pytest.mark.slow] if name == "fill the disks" else [])
        for name, one in AS_USER.items()
    ],
)
def test_a_user_changes_nothing(provider: LocalProvider, in_order: dict[str, object], attempt: str) -> None:
    said = in_guest(provider, VM, f"exec 2>&1; {attempt}", seconds=120)

    assert "worked" not in said, said
    assert "listening" not in said, said
    try:
        assert answers(provider) | {"who": who_answers(provider)} == in_order
        assert provider.alterations(VM) == []
    finally:
        in_guest(provider, VM, CLEAN_UP)


def test_a_user_without_access_to_the_display_does_not_lock_the_server_out(
    fresh: LocalProvider, in_order: dict[str, object]
) -> None:
    run(fresh, "xhost -; xauth remove :0; mcookie >~/.Xauthority")

    now = answers(fresh)

    assert "Can't connect to display" in str(now.pop("action")), "what the user took from themselves"
    assert now == {name: answer for name, answer in in_order.items() if name in now}


BAIT = "import os; open(f'/tmp/bait-{os.getuid()}', 'a').write(__file__)"
FOR_PYTHON = (
    "usercustomize",
    "sitecustomize",
    "server",
    "waitress",
    "flask",
    "requests",
    "PIL",
    "Xlib",
    "idna",
    "this",
    "ctypes",
)
PLANT = f"""
user_site=~/.local/lib/python3.11/site-packages
mkdir -p $user_site ~/.local/bin ~/bin ~/.config/environment.d ~/.config/systemd/user ~/.config/autostart /tmp/server
for name in {" ".join(FOR_PYTHON)}; do
    for folder in $user_site /tmp /tmp/server; do echo "{BAIT}" >$folder/$name.py; done
done
for name in usercustomize sitecustomize server waitress session; do echo "{BAIT}" >~/$name.py; done
echo "import os; {BAIT.replace("__file__", "'pth'")}" >$user_site/bait.pth
for name in sh bash python python3 env gdbus Xvfb socat; do
    for folder in ~/.local/bin ~/bin /tmp; do
        printf '#!/bin/sh\ntouch /tmp/bait-$(id -u)\necho bait\n' >$folder/$name; chmod 755 $folder/$name
    done
done
for name in .bashrc .profile .bash_profile .bash_login .xsessionrc .pam_environment .config/environment.d/bait.conf; do
    echo 'export PATH=/tmp:$PATH PYTHONPATH=/tmp LD_PRELOAD=/tmp/bait.so BASH_ENV=/tmp/sh; echo bait' >>~/$name
done
echo '* * * * * touch /tmp/bait-cron' | crontab -
printf '[Service]\nExecStart=/tmp/sh\n[Install]\nWantedBy=default.target\n' >~/.config/systemd/user/bait.service
systemctl --user enable --now bait.service
printf '[Desktop Entry]\nType=Application\nExec=/tmp/sh\n' >~/.config/autostart/bait.desktop
echo 'not a library' >/tmp/bait.so
true
"""


def test_what_a_user_plants_is_never_taken_for_the_servers_own(
    fresh: LocalProvider, in_order: dict[str, object]
) -> None:
    """Neither by the server that runs nor by one that has to start again."""
    run(fresh, PLANT)
    expected = {name: answer for name, answer in in_order.items() if name != "who"}
    assert answers(fresh) == expected

    before = who_answers(fresh)
    for pid in (*outside("-m server"), *outside("interpreter.py")):
        with suppress(ProcessLookupError):  # the one ends with the other
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            now = answers(fresh)
            break
        except (OSError, http.client.HTTPException):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    assert now == expected
    assert set(before[1:]).isdisjoint(who_answers(fresh)), "both were started again"
    assert run(fresh, "ls /tmp/bait-0 /tmp/bait-cron 2>/dev/null") == ""
    assert run(fresh, ["python3", "-c", "pass"]) == "", "the bait is good"
    assert run(fresh, "ls /tmp | grep bait-1000") == "bait-1000\n"


def test_nobody_takes_the_port_while_the_server_is_started_again(
    fresh: LocalProvider, in_order: dict[str, object]
) -> None:
    grab = (
        "import socket\nwhile True:\n one = socket.socket()\n one.setsockopt(1, 2, 1); one.setsockopt(1, 15, 1)\n"
        " try:\n  one.bind(('127.0.0.1', 5000)); one.listen(); open('/tmp/grabbed', 'w')\n except OSError: pass"
    )
    run(fresh, f"for n in 1 2; do setsid python3 -c {shlex.quote(grab)} >/dev/null 2>&1 & done")
    for _ in range(3):
        (server,) = outside("-m server")
        os.kill(server, signal.SIGKILL)
        while True:
            try:
                assert ask(fresh, "GET", "/platform") == b"Linux"
                break
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)
    assert run(fresh, "ls /tmp/grabbed 2>/dev/null") == ""


AS_ROOT = {
    "another server": (f"kill -9 {SERVER}", "does not listen on port 5000 any more"),
    "another program for the server": (
        "cp /bin/true /tmp/x; cat /tmp/x >/usr/bin/python3.11 || (rm /usr/bin/python3.11; cp /tmp/x /usr/bin/python3.11)",
        "written over: /usr/bin/python3.11",
    ),
    "other code": ("echo >>/usr/lib/guest/python/server/app.py", "written over: /usr/lib/guest"),
    "code beside its own": ("touch /usr/lib/guest/python/waitress.py", "written over: /usr/lib/guest"),
    "code before the library": ("touch /usr/lib/python3.11/waitress.py", "written over: /usr/lib/python3.11"),
    "a library of Python before its own": ("touch /usr/lib/python311.zip", "written over: /usr/lib/python311.zip"),
    "code that was there and gone": (
        "touch /usr/lib/python3.11/bait.py; rm /usr/lib/python3.11/bait.py",
        "written over: /usr/lib/python3.11",
    ),
    "another library": (
        "cp /usr/lib/x86_64-linux-gnu/libxcb.so.1.1.0 /tmp/x; mv /tmp/x /usr/lib/x86_64-linux-gnu/libxcb.so.1.1.0",
        "written over: /usr/lib/x86_64-linux-gnu/libxcb.so.1.1.0",
    ),
    "a library before all others": ("touch /etc/ld.so.preload", "written over: /etc/ld.so.preload"),
    "another shell": ("cp /bin/bash /tmp/x; mv /tmp/x /usr/bin/dash", "written over: /usr/bin/dash"),
    "another package": (
        "rm -r /usr/lib/python3/dist-packages/flask; mkdir /usr/lib/python3/dist-packages/flask",
        "written over: /usr/lib/python3/dist-packages/flask",
    ),
    "another folder of packages": (
        "cd /usr/lib/python3; cp -r dist-packages new; rm -r dist-packages; mv new dist-packages",
        "written over: /usr/lib/python3/dist-packages",
    ),
    "other programs": (
        "cp -r /usr/lib/guest /tmp/; rm -r /usr/lib/guest; ln -s /tmp/guest /usr/lib/guest",
        "written over: /usr/lib/guest",
    ),
    "another way to libraries": ("cp -a /lib /tmp/lib; mv -T /tmp/lib /lib", "written over: /lib"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("command", "sentence"), AS_ROOT.values(), ids=AS_ROOT.keys())
def test_what_root_replaces_is_noticed(fresh: LocalProvider, command: str, sentence: str) -> None:
    assert fresh.alterations(VM) == []
    try:
        run(fresh, as_root(command))
    except (OSError, http.client.HTTPException):
        assert "kill" in command

    assert sentence in "; ".join(fresh.alterations(VM))
    with pytest.raises(DesktopUnwell):
        fresh.check(VM)


def test_root_cannot_get_into_the_server_or_take_its_socket(fresh: LocalProvider, in_order: dict[str, object]) -> None:
    for name in ("trace", "write into memory", "take descriptors", "listen in its place"):
        said = run(fresh, as_root(AS_USER[name]))
        assert "EPERM" in said or "EACCES" in said or "Address already in use" in said, (name, said)
        assert "worked" not in said, (name, said)
        assert "listening" not in said, (name, said)
    assert fresh.alterations(VM) == []


NAME_SERVICE = """
cd /usr/lib/x86_64-linux-gnu && cp libnss_compat.so.2 libnss_planted.so.2 &&
sed -i 's/^\\(passwd\\|group\\|hosts\\):.*/\\1: planted files/' /etc/nsswitch.conf
"""


def test_root_gets_no_library_into_the_server_by_settings(fresh: LocalProvider) -> None:
    """The C library would load what /etc/nsswitch.conf names, whenever a name is looked up; later, no trace would be left."""
    run(fresh, as_root(NAME_SERVICE))
    assert "planted" in run(fresh, "cat /etc/nsswitch.conf")
    for form in ("file_path=~nobody-there/a", "file_path=~root/a"):
        with pytest.raises(AssertionError, match="there is no file"):
            ask(fresh, "POST", "/file", form=form)
    with pytest.raises(AssertionError, match="cannot load"):
        ask(fresh, "POST", "/setup/download_file", {"url": "http://nobody.example/x", "path": "/home/user/x"})
    (server,) = outside("python3 -sB -m server")
    assert "planted" not in Path(f"/proc/{server}/maps").read_text()
    assert fresh.alterations(VM) == []


def test_what_root_does_besides_is_no_alteration(fresh: LocalProvider) -> None:
    run(
        fresh,
        as_root(
            "useradd another; touch /usr/bin/mine /usr/lib/x86_64-linux-gnu/libmine.so; ldconfig; mkdir -p /opt/mine;"
            " mkdir /usr/lib/python3/dist-packages/mine /usr/local/lib/python3.11/dist-packages/PIL; python3 -m compileall -q /opt;"
            " touch /usr/local/lib/python3.11/dist-packages/PIL/__init__.py; echo >>/etc/hosts; rm /usr/bin/gnome-calculator;"
            " timedatectl set-timezone Asia/Tokyo"
        ),
    )
    run(fresh, "mkdir -p ~/.local/lib/python3.11/site-packages/mine; gedit & sleep 1; pkill gedit")

    assert fresh.alterations(VM) == []
    fresh.check(VM)


def test_the_server_is_not_taken_for_altered_while_it_starts_programs(fresh: LocalProvider) -> None:
    run(fresh, "for n in $(seq 20); do sleep 0.01; done")
    for _ in range(30):
        with_many = [fresh.connect(VM, "control") for _ in range(4)]
        for one in with_many:
            one.sendall(
                b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: 23\r\n\r\n" + b'{"command": ["true"]}  '
            )
        assert fresh.alterations(VM) == []
        for one in with_many:
            one.close()
