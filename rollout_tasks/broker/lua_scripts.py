"""The Lua scripts that work on the broker's own keys, those of kombu's Redis transport."""

from pathlib import Path

from rollout_tasks.redis_client import LuaScripts

SCRIPTS = LuaScripts(Path(__file__).with_name("lua"))
