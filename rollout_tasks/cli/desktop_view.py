"""`rollouts desktops view`: prints an address where a person sees the desktop of a lease that a service gave."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import ValidationError

from rollout_tasks.errors import UserError
from vm_pool.providers.remote.options import TOKEN_VARIABLE, RemoteOptions, token


def view(
    lease: Annotated[str, typer.Argument(metavar="LEASE", help="The lease's id.")],
    url: Annotated[str, typer.Option("--url", help="The service, as http://HOST:8770.")],
    may_help: Annotated[
        bool, typer.Option("--may-help", help="Let the person use keyboard, pointer and clipboard, too.")
    ] = False,
) -> None:
    """Print an address that shows a lease's desktop in a browser, once.

    It works for two minutes, for whoever opens it first; the token of the lease's
    holder, or an operator's, comes from ROLLOUT_DESKTOPS_TOKEN.
    """
    from rollout_tasks.service_client import DesktopClient, DesktopServiceError  # here, because it imports httpx

    address = _checked(url)
    try:
        own = token()
    except ValueError as error:
        raise UserError(str(error)) from error
    if not own:
        raise UserError(f"{TOKEN_VARIABLE} is not set: it is the token of the lease's holder, or an operator's")
    try:
        with DesktopClient(address, own, patience=0) as client:
            typer.echo(client.view(lease, may_help=may_help))
    except DesktopServiceError as error:
        raise UserError(f"lease {lease}: {error}") from error


def _checked(url: str) -> str:
    try:
        return RemoteOptions(url=url).url
    except ValidationError as error:
        raise UserError(f"--url: {str(error.errors()[0]['msg']).removeprefix('Value error, ')}") from error
