"""Boots a local desktop and is killed at a given step. Run as: dying_host.py STEP VM_ID"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from vm_pool.providers.local import LocalProvider
from vm_pool.providers.local.container import Container

step, vm_id = sys.argv[1:]
provider = LocalProvider({"screen_width": 800, "screen_height": 600})


def die(*_args: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def then_die(work: Callable[..., Any]) -> Callable[..., None]:
    def work_and_die(*args: Any) -> None:
        work(*args)
        die()

    return work_and_die


if step == "the folder is made":
    Container._launch = die
elif step == "the keeper is launched":
    Container._launch = then_die(Container._launch)
elif step == "the first process runs":
    Container._open_insides = die
provider.boot(vm_id)
if step == "it is being reset":
    Container._make_folder = then_die(Container._make_folder)
    provider.reset(vm_id)
die()
