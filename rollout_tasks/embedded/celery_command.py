"""Celery's command for the services of embedded runs: as `celery`, but never with another `rollout_tasks`.

Celery looks first in the current folder for the package that it is given, and that folder may be a checkout of another
version. Here the package is imported by then.
"""

from __future__ import annotations

import sys

from celery.bin.celery import main

import rollout_tasks  # noqa: F401

if __name__ == "__main__":
    sys.exit(main())
