"""Which item a client plays on its lease: one of the service's, a task of its own, or none on a bare desktop."""

from __future__ import annotations

from benchmark.errors import BenchmarkError
from benchmark.items import Item, read_item
from rollout_tasks import registry
from rollout_tasks.errors import UserError
from rollout_tasks.service.desktop_sessions import DesktopSessions
from rollout_tasks.service.lending.messages import LeaseRequest
from rollout_tasks.service.lending.refusal import Refusal, refusing


def chosen_item(sessions: DesktopSessions, request: LeaseRequest) -> Item | None:
    """Returns the item that a client asks for; None for a bare desktop.

    Args:
        sessions: Those that will play it.
        request: What the client asks for. Its task is not believed: it is checked as an item of a run is.

    Raises:
        Refusal: There is no such item, or the task is none that can be played here.
    """
    if request.item is not None and request.task is not None:
        raise Refusal(422, "item and task: say one of them, or neither for a bare desktop")
    if request.item is not None:
        with refusing():
            return sessions.item(request.item)
    if request.task is None:
        return None
    try:
        item = read_item(request.task, "task")
        _check(sessions, item)
    except (BenchmarkError, UserError) as error:
        raise Refusal(422, str(error)) from error
    except ValueError as error:  # of `check_item`
        raise Refusal(422, f"task: {error}") from error
    return item


def bare_item(sessions: DesktopSessions) -> Item:
    """Returns the item that stands for no task.

    Raises:
        Refusal: The service's environment has none.
    """
    names = sessions.environments
    name = sessions.config.env_mode if sessions.config.env_mode in names else min(names)
    item = registry.environment(name).bare_item(sessions.config)
    if item is None:
        raise Refusal(422, f"environment {name!r} has no bare desktops: say an item or a task")
    return Item(item.id, item.question, item.answer, item.metadata, {**item.env_config, "env_mode": name})


def _check(sessions: DesktopSessions, item: Item) -> None:
    own = item.env_config.get("env_mode", sessions.config.env_mode)
    if not isinstance(own, str) or own not in sessions.environments:
        known = ", ".join(sorted(sessions.environments))
        raise UserError(f"task: env_config.env_mode must be one that this service serves ({known}), got {own!r:.100}")
    environment = registry.environment(own)
    try:
        environment.check_item(sessions.config, item)
    except (ValueError, UserError):
        raise
    except Exception as error:  # the border to environments: a task that their check breaks on is a wrong one
        raise UserError(f"task: it cannot be checked: {type(error).__name__}: {error}") from error
