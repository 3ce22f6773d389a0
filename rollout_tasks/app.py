"""The Celery application: settings from `celeryconfig.py`, tasks from `tasks.py`. For workers, see `worker`."""

from __future__ import annotations

import importlib

from celery import Celery

from rollout_tasks import flower_login
from rollout_tasks.broker import transport

transport.install()
flower_login.require_login()
app = Celery("rollout_tasks", include=["rollout_tasks.tasks"])
app.config_from_object(importlib.import_module("celeryconfig"))
