"""What commands use, as it is read from them without running any."""

from __future__ import annotations

import pytest

from desktop_image.conformance.command_uses import host_of, uses_of_python, uses_of_shell, uses_of_words


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("ls -la | grep x > out 2>&1 && wc -l out; true", ["ls", "grep", "wc"]),
        ('output=$(ps aux | grep "[s]office"); if [ -z "$output" ]; then echo none; fi', ["ps", "grep"]),
        ("echo 1 | sudo -S apt-get update -y", ["sudo", "apt-get"]),
        ('for f in *.txt; do mv "$f" "$(basename `readlink -f $f`)"; done', ["mv", "basename", "readlink"]),
        ("A=1 B=2 env C=3 bc <<< '1 + 1'", ["env", "bc"]),
        ("/usr/bin/thunderbird -compose \"to='a@b.c',body='$(cat /home/user/x)'\"", ["thunderbird", "cat"]),
        ("bash -c 'sed s/a/b/ x && nohup timeout 5s jq . y'", ["bash", "sed", "nohup", "timeout", "jq"]),
        ("pulseaudio --start\npactl list sinks | awk '{print $5}'", ["pulseaudio", "pactl", "awk"]),
        ("# rm x\ncd ~/y", []),
        ("./setup.sh && bash eval.sh", ["bash"]),
        ("if (", []),
        ("", []),
        ("$(" * 3000, []),
    ],
)
def test_programs_are_found_where_the_shell_would_run_them(text: str, programs: list[str]) -> None:
    assert [name for kind, name in uses_of_shell(text) if kind == "program"] == programs


@pytest.mark.parametrize(
    ("words", "uses"),
    [
        (["google-chrome", "--remote-debugging-port=1337"], [("program", "google-chrome")]),
        (["google-chrome", "https://a.example/b"], [("program", "google-chrome"), ("internet", "a.example")]),
        (["/bin/bash", "-c", "unzip a"], [("program", "bash"), ("program", "unzip")]),
        (
            ["python", "-c", "import pyautogui, time; from numpy.linalg import det"],
            [("program", "python"), ("module", "pyautogui"), ("module", "numpy")],
        ),
        (
            ["gsettings", "get", "org.gnome.shell", "favorite-apps"],
            [("program", "gsettings"), ("setting", "org.gnome.shell favorite-apps")],
        ),
        (
            ["gdbus", "call", "--session", "--dest", "org.a11y.Bus", "--object-path", "/org/a11y/bus"],
            [("program", "gdbus"), ("bus name", "org.a11y.Bus")],
        ),
        (["pip", "install", "pygame"], [("program", "pip"), ("package", "pygame")]),
        (["pip", "install", "-q", "a==1.2", "b[c]"], [("program", "pip"), ("package", "a"), ("package", "b")]),
        (["apt", "install", "jq", "-y"], [("program", "apt"), ("package", "jq")]),
        (["npm", "install"], [("program", "npm"), ("internet", "packages")]),
        (["pip", "install", "git+https://e.org/a"], [("program", "pip"), ("internet", "packages")]),
        (["pip", "install", "/home/user/a-1-py3-none-any.whl"], [("program", "pip")]),
        (
            ["git", "clone", "https://github.com/a/b"],
            [("program", "git"), ("internet", "github.com"), ("internet", "github.com")],
        ),
        (["cp", "/usr/share/a.desktop", "/home/user"], [("program", "cp"), ("file", "/usr/share/a.desktop")]),
        (["/opt/tool/run", "x"], [("file", "/opt/tool/run")]),
        ([], []),
    ],
)
def test_arguments_say_more_than_the_program(words: list[str], uses: list[tuple[str, str]]) -> None:
    assert list(uses_of_words(words)) == uses


def test_commands_inside_commands_are_read_only_so_deep() -> None:
    assert len(list(uses_of_words(["sudo"] * 100 + ["ls"]))) < 10


def test_broken_python_uses_nothing() -> None:
    assert list(uses_of_python("import (")) == []
    assert list(uses_of_python("\0")) == []


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("https://www.example.org/a?b", "www.example.org"),
        ("http://localhost:8080", ""),
        ("http://127.0.0.1/x", ""),
        ("ftp://example.org", ""),
        ("http://[broken", ""),
        ("/home/user", ""),
    ],
)
def test_hosts_of_the_internet(text: str, host: str) -> None:
    assert host_of(text) == host
