"""The Lua files as such: documented, self-contained in one slot, and loaded under Redis's own name for them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import vm_pool
from vm_pool.lua_scripts import PoolKeys, microseconds, scripts

FOLDER = Path(vm_pool.__file__).parent / "lua"
NAMES = sorted(path.stem for path in FOLDER.glob("*.lua") if path.stem != "prelude")


@pytest.mark.parametrize("name", NAMES)
def test_a_script_says_what_it_takes_and_returns(name: str) -> None:
    text = (FOLDER / f"{name}.lua").read_text()
    comment = text[: text.index("\n\n")]
    assert all(line.startswith("--") for line in comment.splitlines())
    assert "Returns" in comment
    used = {int(number) for number in re.findall(r"ARGV\[(\d+)\]", text)} - {1}
    documented = {int(number) for number in re.findall(r"ARGV\[(\d+)\]", comment)}
    assert used <= documented | ({3} if name == "renew" else set())


@pytest.mark.parametrize("name", [*NAMES, "prelude"])
def test_every_key_is_in_the_pools_slot(name: str) -> None:
    text = (FOLDER / f"{name}.lua").read_text()
    code = re.sub(r"--.*", "", text).replace("call('INFO', 'server')", "")  # has no key
    for call in re.findall(r"call\('[A-Z]+', ([^,)]+)", code):
        assert call.strip().startswith(("P ..", "key", "inbox", "members")) or call.strip() == "P", call


def test_a_script_is_called_by_the_hash_of_what_is_sent() -> None:
    keys = PoolKeys("p")
    by_hash = keys.command("reap")
    by_source = keys.command_with_source("reap")
    assert by_hash[1] == hashlib.sha1(str(by_source[1]).encode(), usedforsecurity=False).hexdigest()
    assert by_hash[2:] == by_source[2:] == (1, "{pool:p}", 100_000)


def test_scripts_are_read_once() -> None:
    assert scripts() is scripts()


def test_scripts_count_in_microseconds() -> None:
    assert [microseconds(seconds) for seconds in (0, 1.0, 3600.0, 0.0000015)] == [0, 1_000_000, 3_600_000_000, 2]
