"""What the session gateway adds to a model call: the same calls to the scripted model, directly and through the gateway.

The gateway runs as in a worker: in the process that asks, with a record on disk. Direct calls and calls through it follow
each other, so that a busy machine slows both. Prints a table; ``--json`` prints the figures. Not a test: it says how fast
this machine is today.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.table import Table

from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.client import SESSION_HEADER
from rollout_tasks.models.gateway.endpoint_engine import EndpointEngine
from rollout_tasks.models.gateway.gateway import Gateway
from rollout_tasks.models.scripted.process import ScriptedModelProcess
from rollout_tasks.trajectories.calls import CallWriter

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "items.jsonl"
SESSION = "bench/sailing-crew/0/1"
AIM_MS = 2.0
"""The most that the gateway may add to a call in the median."""
_WARM_UP = 10
_PICTURE_BYTES = 300_000
"""About a screenshot of a desktop as PNG."""


def measure(calls: int, pictures: int) -> dict[str, list[float]]:
    """Milliseconds of each call, sorted.

    Args:
        calls: How many of each kind.
        pictures: Screenshots in each prompt.
    """
    url = f"data:image/png;base64,{b64encode(os.urandom(_PICTURE_BYTES)).decode()}"
    parts: list[dict[str, Any]] = [{"type": "text", "text": "What now?"}]
    parts += [{"type": "image_url", "image_url": {"url": url}} for _ in range(pictures)]
    body = json.dumps({"model": "scripted", "messages": [{"role": "user", "content": parts}]}).encode()
    with (
        tempfile.TemporaryDirectory(prefix="gateway-") as folder,
        ScriptedModelProcess(EXAMPLES) as model,
        Gateway() as gateway,
        CallWriter(Path(folder), {}) as writer,
        httpx.Client(timeout=60) as client,
    ):
        engine = EndpointEngine(ModelConfig(name="scripted", base_url=model.url))
        with gateway.open(SESSION, engine, writer) as session:
            ways = {
                "direct": (model.url, {SESSION_HEADER: SESSION}),
                "gateway": (session.base_url, {"Authorization": f"Bearer {session.token}"}),
            }
            taken: dict[str, list[float]] = {name: [] for name in ways}
            for number in range(calls + _WARM_UP):
                for name, (base_url, headers) in ways.items():
                    began = time.perf_counter()
                    client.post(f"{base_url}/chat/completions", content=body, headers=headers).raise_for_status()
                    if number >= _WARM_UP:
                        taken[name].append(1000 * (time.perf_counter() - began))
    return {name: sorted(values) for name, values in taken.items()}


def figures(taken: dict[str, list[float]]) -> dict[str, float]:
    """Returns median and 99th percentile of each way, and what the gateway adds to them; milliseconds."""
    found = {}
    for name, values in taken.items():
        found[f"{name}_p50_ms"] = statistics.median(values)
        found[f"{name}_p99_ms"] = values[min(len(values) - 1, int(len(values) * 0.99))]
    for which in ("p50", "p99"):
        found[f"added_{which}_ms"] = found[f"gateway_{which}_ms"] - found[f"direct_{which}_ms"]
    return found


def main(
    calls: Annotated[int, typer.Option(min=1, help="Calls of each kind for each size of prompt.")] = 300,
    pictures: Annotated[int, typer.Option(min=0, help="Screenshots in the larger prompt.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measures what the session gateway adds to a model call."""
    found = {
        name: figures(measure(calls, count)) for name, count in {"text": 0, f"{pictures} pictures": pictures}.items()
    }
    met = found["text"]["added_p50_ms"] <= AIM_MS
    if as_json:
        print(json.dumps({"figures": found, "aim_ms": AIM_MS, "met": met, "cores": os.cpu_count()}, indent=2))
        return
    table = Table(title=f"One model call in milliseconds; {calls} calls of each kind; {os.cpu_count()} cores")
    for heading in ("prompt", "", "direct", "gateway", "added"):
        table.add_column(heading, justify="left" if heading == "prompt" else "right", no_wrap=True)
    for name, own in found.items():
        for which in ("p50", "p99"):
            ways = (own[f"{way}_{which}_ms"] for way in ("direct", "gateway", "added"))
            table.add_row(name, which, *(f"{value:.2f}" for value in ways))
    console = Console()
    console.print(table)
    console.print(
        f"text, p50: {found['text']['added_p50_ms']:.2f} ms added, aim {AIM_MS:g}: {'met' if met else 'not met'}"
    )


if __name__ == "__main__":
    typer.run(main)
