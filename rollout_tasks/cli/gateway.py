"""`rollouts gateway`: serves a model to agents elsewhere, which open sessions over HTTP, and records their calls."""

from __future__ import annotations

import ipaddress
import logging
import resource
import socket
import tempfile
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from rollout_tasks.cli import listening, program
from rollout_tasks.config import parse_config
from rollout_tasks.errors import UserError
from rollout_tasks.http_services.sessions import IDLE_SECONDS, RemoteSessions
from rollout_tasks.http_services.tokens import ServiceTokens
from rollout_tasks.model_config import DEFAULT_MODEL
from rollout_tasks.models.gateway.endpoint_engine import EndpointEngine
from rollout_tasks.models.gateway.gateway import Gateway
from rollout_tasks.runs.model_check import check_model
from rollout_tasks.settings import checked_key, settings

logger = logging.getLogger(__name__)
application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

_LOOK_SECONDS = 10.0


@application.command()
def gateway(
    model: Annotated[str, typer.Option(help="The model that is served.")] = DEFAULT_MODEL,
    base_url: Annotated[str | None, typer.Option(help="Its endpoint. Default: OPENAI_BASE_URL, else OpenAI.")] = None,
    model_pool: Annotated[str | None, typer.Option(help="A model pool in place of an endpoint.")] = None,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: a free one.")] = 8790,
    advertised: Annotated[
        str, typer.Option("--url", help="The address that sessions are told, as http://HOST:PORT.")
    ] = "",
    max_retries: Annotated[
        int, typer.Option(min=1, max=100, help="Tries of one call before it fails, the first one included.")
    ] = 3,
    model_timeout: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds that one try may take.")] = 120.0,
    output_dir: Annotated[Path, typer.Option(help="Where the sessions' records go.")] = Path("sessions"),
) -> None:
    """Serve a model to agents elsewhere until Ctrl-C or SIGTERM.

    An agent's program opens a session with one of the tokens in
    ROLLOUT_SERVICE_TOKENS, and gets the session's base URL and its key:

    [bold]curl -H "Authorization: Bearer TOKEN" -d '{}' http://HOST:8790/sessions[/bold]

    A session speaks Chat Completions, Responses and Anthropic's Messages, and
    takes a reward. Each call is recorded in calls.jsonl of the session's folder.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it tells of every request
    given = settings().service_tokens
    tokens = ServiceTokens(given.get_secret_value() if given is not None else "")
    if _is_everywhere(host) and not advertised:
        raise UserError(f"--host {host!r} listens at all addresses: say with --url which one sessions are told")
    named = {"name": model, "base_url": base_url, "pool": model_pool}
    options = {**named, "max_retries": max_retries, "timeout": model_timeout}
    config = check_model(parse_config({"model": {key: value for key, value in options.items() if value is not None}}))
    key = settings().openai_api_key
    engine = EndpointEngine(config.model, api_key=checked_key(key.get_secret_value()) if key is not None else "")
    served = Gateway(host=host, port=port, advertised=_checked(advertised))
    sessions = RemoteSessions(served, engine, output_dir, tokens)
    served.opener = sessions
    _check_folder(output_dir)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each session has a file and connections
    stop = program.stopped_by_signals()
    served.start()
    try:
        listening.warn_without_tls(host)
        scripted = " (the scripted model)" if config.model.scripted else ""
        logger.info(
            "serving %s%s at %s/sessions, port %d; records: %s", model, scripted, served.url, served.port, output_dir
        )
        while not stop.wait(_LOOK_SECONDS):
            for name in sessions.close_idle():
                logger.info("session %s was closed: it had no call for %g s", name, IDLE_SECONDS)
    finally:
        sessions.close_all()
        served.close()


def _is_everywhere(host: str) -> bool:
    """Whether a server at this address would listen at all addresses of the machine, however that is spelled."""
    try:
        found = socket.getaddrinfo(host or None, None, flags=socket.AI_PASSIVE)
    except OSError:
        return False  # to listen there fails, and says why
    return any(ipaddress.ip_address(str(place[0]).partition("%")[0]).is_unspecified for *_, place in found)


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    odd = any(letter in "@?#\\" or not "!" <= letter <= "~" for letter in url) or url.endswith(":")
    if url and (odd or not good):
        raise UserError(
            f"--url must look like https://HOST or https://HOST:PORT/PREFIX, without a login, got {url[:200]!r}"
        )
    return url


def _check_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile("wb", dir=folder):
            pass
    except OSError as error:
        raise UserError(f"--output-dir {folder}: {error.strerror}") from error


def main() -> None:
    """Runs the command."""
    program.run(application)


if __name__ == "__main__":
    main()
