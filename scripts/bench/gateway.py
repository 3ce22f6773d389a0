"""What the session gateway adds to a model call: the same calls to the scripted model, directly and through the gateway.

The gateway runs as in a worker: in the process that asks, with a record on disk. Direct calls and calls through it follow
each other, so that a busy machine slows both. LiteLLM's proxy has its turn, too, if its program is named; it is not installed
with this project. Prints a table; ``--json`` prints the figures. Not a test: it says how fast this machine is today.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import statistics
import subprocess
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
_PROXY_SECONDS = 180.0
_PICTURE_BYTES = 300_000
"""About a screenshot of a desktop as PNG."""


@contextmanager
def litellm_proxy(program: Path, model_url: str, folder: Path) -> Iterator[tuple[str, str]]:
    """LiteLLM's proxy in front of an endpoint: its base URL and its key.

    Raises:
        TimeoutError: It does not answer.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    key = f"sk-{secrets.token_hex(16)}"
    served: dict[str, Any] = {"model": "openai/scripted", "api_base": model_url, "api_key": "none"}
    served["extra_headers"] = {SESSION_HEADER: SESSION}
    config = {"model_list": [{"model_name": "scripted", "litellm_params": served}]}
    (folder / "litellm.yaml").write_text(json.dumps(config))  # JSON is YAML
    command = [str(program), "--config", "litellm.yaml", "--host", "127.0.0.1", "--port", str(port)]
    environment = {**os.environ, "LITELLM_MASTER_KEY": key}
    with (
        (folder / "litellm.log").open("wb") as log,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            deadline = time.monotonic() + _PROXY_SECONDS
            while True:
                try:
                    httpx.get(f"http://127.0.0.1:{port}/health/liveliness", timeout=5).raise_for_status()
                    break
                except httpx.HTTPError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise TimeoutError(
                            f"{program} does not answer: {(folder / 'litellm.log').read_text()}"
                        ) from None
                    time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1", key
        finally:
            process.terminate()


def measure(calls: int, pictures: int, litellm: Path | None = None) -> dict[str, list[float]]:
    """Milliseconds of each call, sorted.

    Args:
        calls: How many of each kind.
        pictures: Screenshots in each prompt.
        litellm: LiteLLM's program, to be measured beside.
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
        with gateway.open(SESSION, engine, writer) as session, ExitStack() as stack:
            ways = {
                "direct": (model.url, {SESSION_HEADER: SESSION}),
                "gateway": (session.base_url, {"Authorization": f"Bearer {session.token}"}),
            }
            if litellm is not None:
                proxy, key = stack.enter_context(litellm_proxy(litellm, model.url, Path(folder)))
                ways["litellm"] = proxy, {"Authorization": f"Bearer {key}"}
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
        for name in taken.keys() - {"direct"}:
            added = "added" if name == "gateway" else f"added_by_{name}"
            found[f"{added}_{which}_ms"] = found[f"{name}_{which}_ms"] - found[f"direct_{which}_ms"]
    return found


def main(
    calls: Annotated[int, typer.Option(min=1, help="Calls of each kind for each size of prompt.")] = 300,
    pictures: Annotated[int, typer.Option(min=0, help="Screenshots in the larger prompt.")] = 4,
    litellm: Annotated[Path | None, typer.Option(help="LiteLLM's program, to measure its proxy beside.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measures what the session gateway adds to a model call."""
    found = {
        name: figures(measure(calls, count, litellm))
        for name, count in {"text": 0, f"{pictures} pictures": pictures}.items()
    }
    met = found["text"]["added_p50_ms"] <= AIM_MS
    if as_json:
        print(json.dumps({"figures": found, "aim_ms": AIM_MS, "met": met, "cores": os.cpu_count()}, indent=2))
        return
    table = Table(title=f"One model call in milliseconds; {calls} calls of each kind; {os.cpu_count()} cores")
    columns = ["direct", "gateway", "added", *(["litellm", "added_by_litellm"] if litellm else [])]
    for heading in ("prompt", "", *(column.replace("_", " ") for column in columns)):
        table.add_column(heading, justify="left" if heading == "prompt" else "right", no_wrap=True)
    for name, prompt_figures in found.items():
        for which in ("p50", "p99"):
            ways = (prompt_figures[f"{way}_{which}_ms"] for way in columns)
            table.add_row(name, which, *(f"{value:.2f}" for value in ways))
    console = Console()
    console.print(table)
    console.print(
        f"text, p50: {found['text']['added_p50_ms']:.2f} ms added, aim {AIM_MS:g}: {'met' if met else 'not met'}"
    )


if __name__ == "__main__":
    typer.run(main)
