"""The Celery application: settings from `celeryconfig.py`, tasks from `tasks.py`. For workers, see `worker`."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from celery import Celery

from rollout_tasks import flower_login
from rollout_tasks.broker import transport

_CONFIGURATION = Path(__file__).parents[1] / "celeryconfig.py"


def _configuration() -> ModuleType:
    """Returns the settings beside this package: by name, Celery would find another `celeryconfig` in the current folder."""
    spec = spec_from_file_location(_CONFIGURATION.stem, _CONFIGURATION)
    if spec is None or spec.loader is None:
        raise ImportError(f"{_CONFIGURATION} cannot be imported")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


transport.install()
flower_login.require_login()
app = Celery("rollout_tasks", include=["rollout_tasks.tasks"])
app.config_from_object(_configuration())
