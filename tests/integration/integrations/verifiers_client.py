"""One episode of verifiers on the server: ``python verifiers_client.py URL TOKEN URL_WITH_TOKEN MODEL_URL``.

The model at MODEL_URL is scripted; verifiers' own OpenEnv environment steps the server with its replies. Prints how it ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.harnesses.null import NullHarnessConfig
from verifiers.v1.runtimes import SubprocessConfig
from verifiers.v1.tasksets.openenv.taskset import OpenEnvConfig, OpenEnvEnv, OpenEnvEnvConfig

_, _, URL, MODEL_URL = sys.argv[1:5]


async def play() -> Any:
    os.environ["SCRIPTED_KEY"] = "none"
    player = vf.AgentConfig(harness=NullHarnessConfig(id="null"), runtime=SubprocessConfig(), max_turns=9)
    taskset = OpenEnvConfig(id="openenv", base_url=URL, resets=[{"item_id": "two"}])
    environment = OpenEnvEnv(OpenEnvEnvConfig(taskset=taskset, player=player))
    client = vf.EvalClientConfig(base_url=MODEL_URL, api_key_var="SCRIPTED_KEY")
    context = vf.ModelContext(model="policy", client=client)
    async with environment.serving():
        [task] = environment.taskset.load()
        return await environment.run_episode(task, context)


episode = asyncio.run(play())
print(
    json.dumps(
        {
            "ok": episode.ok,
            "errors": [str(error) for one in (episode, *episode.traces) for error in one.errors],
            "rewards": [reward.score for trace in episode.traces for reward in trace.rewards.values()],
        }
    )
)
