"""The Lua scripts that work on the broker's own keys, those of kombu's Redis transport."""

from pathlib import Path

from rollout_tasks.redis_client import Scripts

SCRIPTS = Scripts(Path(__file__).with_name("lua"))
