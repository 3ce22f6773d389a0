"""`rollouts model`: puts servers of a model into a pool that runs share, and shows and operates it."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Annotated

import redis
import typer

from rollout_tasks.cli import model_ask, model_reload, model_try, program
from rollout_tasks.cli.fitting_tables import Column, FittingTable, table_console
from rollout_tasks.config_fields import check_url
from rollout_tasks.errors import UserError
from rollout_tasks.model_config import DEFAULT_MODEL
from rollout_tasks.models.attached_replicas import AttachedReplicas
from rollout_tasks.models.pool.membership import id_of
from rollout_tasks.models.pool.reloads import Reloads, Stage
from rollout_tasks.models.pool.replicas import SILENT_SECONDS, Replica, Replicas, ReplicaState, StaleReplica
from rollout_tasks.redis_client import checked_client, server_time
from rollout_tasks.settings import settings

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

PoolName = Annotated[str, typer.Argument(metavar="POOL", help="The pool's name, as in --model-pool.")]
OneReplica = Annotated[str, typer.Argument(metavar="REPLICA", help="The replica's id, as status shows it.")]
RedisUrl = Annotated[str | None, typer.Option("--redis-url", help="Default: REDIS_URL, else this machine's Redis.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables and sentences.")]


@application.command()
def attach(
    pool: PoolName,
    base_urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Endpoints, as in http://host:8000/v1.")],
    model: Annotated[str, typer.Option("--model", help="The name of the model that they serve.")] = DEFAULT_MODEL,
    weight_version: Annotated[
        str, typer.Option("--weight-version", help="The weights that they have; recorded with every reply.")
    ] = "unknown",
    redis_url: RedisUrl = None,
) -> None:
    """Keep running servers in a pool until Ctrl-C or SIGTERM.

    Each must answer a request first. One that stops working takes no calls after
    15 seconds, and takes them again once it works.
    """
    _log_to_stderr()
    try:
        urls = [check_url(url) for url in base_urls]
    except ValueError as error:
        raise UserError(f"URL: {error}") from error
    if len({id_of(url) for url in urls}) < len(urls):
        raise UserError("URL: one server, that is one host and port, is named twice")
    try:
        attached = AttachedReplicas(checked_client(redis_url), pool, urls, model=model, weight_version=weight_version)
    except ValueError as error:
        raise UserError(str(error)) from error
    attached.check()
    stop = program.stopped_by_signals()
    attached.run(stop)


@application.command()
def serve(
    pool: PoolName,
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT", help="A folder, or a model's name at vLLM's hub, as in Qwen/Qwen3-VL-8B-Instruct."
        ),
    ],
    vllm_options: Annotated[
        list[str] | None, typer.Argument(metavar="VLLM-OPTION", help="More options of vllm serve, after --.")
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="How many servers. Default: as GPUs have room for, without GPUs 1."),
    ] = None,
    model: Annotated[str, typer.Option("--model", help="The name under which they serve it.")] = DEFAULT_MODEL,
    weight_version: Annotated[
        str | None, typer.Option("--weight-version", help="Recorded with every reply. Default: the checkpoint's name.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address of this machine at which workers reach it.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The first server's; 0: free ports.")] = 0,
    logs: Annotated[Path, typer.Option(help="A folder for the servers' logs.")] = Path("model-logs"),
    start_timeout: Annotated[float, typer.Option(min=1, help="Seconds until a server must answer.")] = 1800.0,
    redis_url: RedisUrl = None,
) -> None:
    """Start servers of a checkpoint with vLLM, and keep them in a pool until Ctrl-C.

    One for each GPU with enough free memory, or as many as --replicas says. Each
    joins the pool once it has answered a request; one that ends or answers no
    HTTP is started again. At the end, each has 20 seconds to finish its calls.

    [bold]rollouts model serve policy checkpoints/step-200 -- --max-model-len 32768[/bold]
    """
    from rollout_tasks.models.serving.plan import located, name_of, planned  # here, because only this command needs it
    from rollout_tasks.models.serving.replica_reload import Weights
    from rollout_tasks.models.serving.served_replicas import ServedReplicas

    _log_to_stderr()
    servers = planned(
        checkpoint, vllm_options or [], replicas=replicas, model=model, host=host, first_port=port, key=_key()
    )
    try:
        served = ServedReplicas(
            checked_client(redis_url),
            pool,
            servers,
            model=model,
            weights=Weights(located(checkpoint), name_of(checkpoint) if weight_version is None else weight_version),
            logs=logs,
            start_seconds=start_timeout,
        )
    except ValueError as error:
        raise UserError(str(error)) from error
    served.run(program.stopped_by_signals())


@application.command()
def status(pool: PoolName, redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """Show a pool's replicas: whether each takes calls, how many it has, and its weights."""
    client: redis.Redis = checked_client(redis_url)
    replicas = _open(pool, client).all()
    if as_json:
        program.print_json([dataclasses.asdict(replica) for replica in replicas])
    elif replicas:
        table_console(highlight=False, markup=False).print(_table(replicas, server_time(client)))
    else:
        typer.echo(f"model pool {pool} has no replica that gave a sign of life in the last {SILENT_SECONDS:.0f} s")


@application.command()
def drain(pool: PoolName, replica: OneReplica, redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """Have a replica finish its calls and get no others."""
    _change(pool, replica, redis_url, as_json, ReplicaState.DRAINING, "finishes its calls and gets no others")


@application.command()
def undrain(pool: PoolName, replica: OneReplica, redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """Have a replica take calls again."""
    _change(pool, replica, redis_url, as_json, ReplicaState.READY, "takes calls")


@application.command()
def weights(
    pool: PoolName,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="What the replicas serve from now on.")],
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Set the weight version of all replicas after they were given new weights.

    It is recorded with every reply."""
    opened = _open(pool, checked_client(redis_url))
    try:
        changed = [opened.change(replica, weight_version=version) for replica in opened.all()]
    except StaleReplica as error:
        raise UserError(f"{error}: run the command again") from error
    except ValueError as error:
        raise UserError(f"VERSION: {error}") from error
    if not changed:
        raise UserError(f"POOL: model pool {pool} has no replica")
    if silent := opened.silent():
        program.tell(
            f"note: {', '.join(silent)} fell silent, and will have the earlier version when it comes back: run this again then"
        )
    if as_json:
        program.print_json([dataclasses.asdict(replica) for replica in changed])
    else:
        typer.echo(f"{len(changed)} {'replica has' if len(changed) == 1 else 'replicas have'} the weights {version}")


@application.command()
def reload(
    pool: PoolName,
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="A folder that each machine with servers of the pool sees.")
    ],
    weight_version: Annotated[
        str | None, typer.Option("--weight-version", help="Recorded with every reply. Default: the folder's name.")
    ] = None,
    in_flight: Annotated[
        bool, typer.Option("--in-flight", help="Calls under way go on with the new weights, not finished first.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds until every replica must have them.")] = 3600.0,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Give the servers that rollouts model serve runs the weights of a checkpoint.

    Each server looks at the checkpoint's files first: if they are broken, or of
    another model, nothing is changed. Then one server after the other finishes
    its calls, reads the weights, forgets what it computed with those before, and
    proves what it has. One that fails is started again with the weights before.
    """
    client: redis.Redis = checked_client(redis_url)
    replicas, reloads = _open(pool, client), Reloads(client, pool)
    requested_reload = model_reload.ask(replicas, reloads, checkpoint, weight_version, in_flight=in_flight)
    requested_reload.follow(timeout, as_json=as_json)


application.command("ask")(model_ask.ask)
application.command("try")(model_try.try_checkpoint)


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it tells of every request


def _key() -> str | None:
    key = settings().openai_api_key
    return key.get_secret_value().strip() if key else None


def _open(pool: str, client: redis.Redis) -> Replicas:
    try:
        return Replicas(client, pool)
    except ValueError as error:
        raise UserError(f"POOL: {error}") from error


def _change(pool: str, name: str, redis_url: str | None, as_json: bool, state: ReplicaState, said: str) -> None:
    client = checked_client(redis_url)
    opened = _open(pool, client)
    found = next((replica for replica in opened.all() if replica.replica_id == name), None)
    if found is None:
        known = ", ".join(replica.replica_id for replica in opened.all()) or "none"
        raise UserError(f"REPLICA: model pool {pool} has no replica {name!r}; known: {known}")
    reloads = Reloads(client, pool)
    wanted = reloads.wanted()
    progress = reloads.progress(wanted).get(name) if wanted else None
    if progress is not None and progress.stage in (Stage.DRAINING, Stage.LOADING):
        raise UserError(f"REPLICA: {name} is given new weights just now ({progress.stage}): wait until it has them")
    try:
        changed = opened.change(found, state=state)
    except StaleReplica as error:
        raise UserError(f"{error}: run the command again") from error
    if as_json:
        program.print_json(dataclasses.asdict(changed))
    else:
        typer.echo(f"{name} {said}")


def _table(replicas: tuple[Replica, ...], now: float) -> FittingTable:
    columns = [
        Column("replica"),
        Column("state"),
        Column("calls", right=True),
        Column("weights", folds_to=24),
        Column("model", leaves=2),
        Column("heard", right=True, leaves=3),
        Column("endpoint", leaves=1),
    ]
    rows = [
        (
            one.replica_id,
            one.state.value,
            str(one.in_flight),
            one.weight_version,
            one.model,
            f"{max(0.0, now - one.heartbeat):.0f} s ago",
            one.base_url,
        )
        for one in replicas
    ]
    return FittingTable(columns, rows)


def main() -> None:
    """Runs the command."""
    program.run(application)


if __name__ == "__main__":
    main()
