"""`rollouts model ask`: one request to a served model or to a model pool."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import redis
import typer

from rollout_tasks.cli import program
from rollout_tasks.cli.question import Picture, Words, question
from rollout_tasks.config_fields import check_url
from rollout_tasks.errors import RolloutFailure, UserError
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.base import Reply
from rollout_tasks.models.client import open_model
from rollout_tasks.models.endpoint import endpoint_of
from rollout_tasks.models.pool.replicas import Replicas
from rollout_tasks.models.refusals import shown_url
from rollout_tasks.redis_client import checked_client
from rollout_tasks.settings import settings
from rollout_tasks.unicode_text import one_line, printable

_REFUSED_KEY = re.compile(r" answered 40[13]: ")


@dataclass(frozen=True, slots=True)
class _Asked:
    """Who is asked."""

    config: ModelConfig
    client: redis.Redis | None = None
    """Of the Redis that has the pool, if it is one."""

    def __str__(self) -> str:
        """Who it is, in a sentence."""
        return f"model pool {self.config.pool}" if self.config.pool else shown_url(endpoint_of(self.config))


def ask(
    model_or_pool: Annotated[
        str, typer.Argument(metavar="MODEL-OR-POOL", help="A pool that has replicas, else a model's name.")
    ],
    words: Words,
    picture: Picture = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="The model's endpoint. Default: OPENAI_BASE_URL, else OpenAI.")
    ] = None,
    redis_url: Annotated[
        str | None,
        typer.Option("--redis-url", help="Where the pool is. Default: REDIS_URL, else this machine's Redis."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the answer.")] = False,
) -> None:
    """Ask a served model or a model pool once, and print its answer.

    Says on stderr what it took, and which replica answered with which weights.

    [bold]rollouts model ask policy "What is on this screen?" --picture screen.png[/bold]
    """
    message = question(words, picture)
    asked = _asked(model_or_pool, base_url, redis_url)
    session = f"ask/{secrets.token_hex(8)}"
    try:
        reply = open_model(asked.config, session_id=session, client=asked.client).complete([message], ())
    except RolloutFailure as failure:
        hint = "; check OPENAI_API_KEY" if _REFUSED_KEY.search(str(failure)) else ""
        raise UserError(f"{failure}{hint}") from failure
    if as_json:
        program.print_json(_as_json(asked, reply))
    else:
        _print(asked, reply)
    if not reply.text:
        raise typer.Exit(program.INCOMPLETE)


def _asked(name: str, base_url: str | None, redis_url: str | None) -> _Asked:
    """Returns who has a name: a pool with replicas, else a model at an endpoint.

    Raises:
        UserError: Nobody has it.
    """
    if base_url is not None:
        if redis_url is not None:
            raise UserError("--base-url names an endpoint, --redis-url the Redis of a pool: give one of them")
        return _at_endpoint(name, base_url)
    try:
        client = checked_client(redis_url)
        replicas = Replicas(client, name).all()
        why = f"model pool {name} has no replica"
    except UserError as error:
        if redis_url is not None:
            raise
        replicas, why = (), str(error)
    except ValueError as error:  # no name that a pool can have
        replicas, why = (), str(error)
    if replicas:
        return _Asked(ModelConfig(name=replicas[0].model, pool=name, max_retries=1), client)
    configured = settings()
    if redis_url is not None or not (configured.openai_base_url or configured.openai_api_key):
        raise UserError(
            f"MODEL-OR-POOL: {name} is neither a pool nor a model whose endpoint is known: {why};"
            " --base-url or OPENAI_BASE_URL names an endpoint"
        )
    return _at_endpoint(name, None)


def _at_endpoint(name: str, base_url: str | None) -> _Asked:
    try:
        url = None if base_url is None else check_url(base_url)
    except ValueError as error:
        raise UserError(f"--base-url: {error}") from error
    if not name:
        raise UserError("MODEL-OR-POOL: is empty")
    return _Asked(ModelConfig(name=name, base_url=url, max_retries=1))


def _print(asked: _Asked, reply: Reply) -> None:
    if reply.text:
        typer.echo(printable(reply.text))
    else:
        program.tell(f"the reply has no text (finish_reason {reply.finish_reason or 'unknown'})")
    if reply.cut_off:
        program.tell("the reply was cut off at a token limit")
    usage, served = reply.usage, reply.served
    versions = dict.fromkeys(filter(None, (served.version_at_start, served.version_at_end)))
    who = (
        f"replica {served.replica} of {asked}" if served.replica else f"{asked} ({reply.served_by or 'no model named'})"
    )
    weights = f" with the weights {', then '.join(versions)}" if versions else ""
    program.tell(
        one_line(
            f"{usage.prompt_tokens:,} tokens asked and {usage.completion_tokens:,} answered in {usage.seconds:.1f} s"
            f" by {who}{weights}"
        )
    )


def _as_json(asked: _Asked, reply: Reply) -> Mapping[str, Any]:
    return {
        "answer": reply.text,
        "thinking": dict(reply.thinking),
        "finish_reason": reply.finish_reason,
        "model": asked.config.name,
        "served_by": reply.served_by,
        "pool": asked.config.pool,
        "endpoint": None if asked.config.pool else str(asked),
        "replica": reply.served.replica or None,
        "weight_version_at_start": reply.served.version_at_start or None,
        "weight_version_at_end": reply.served.version_at_end or None,
        "prompt_tokens": reply.usage.prompt_tokens,
        "completion_tokens": reply.usage.completion_tokens,
        "seconds": round(reply.usage.seconds, 3),
    }
