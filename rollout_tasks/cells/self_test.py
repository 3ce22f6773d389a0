"""Self-test, run in the cells' filesystem: makes one empty cell. If that fails, the last line of stderr says why."""

from __future__ import annotations

import os
import sys

from rollout_tasks.cells.isolation import CellLimits, begin_process_namespace, enter_namespaces, give_up_rights, user_of


def main() -> None:
    """Exits with 0 if a cell can be made."""
    begin_process_namespace(os.pidfd_open(os.getpid()))
    cell = os.fork()
    if cell:
        _, status = os.waitpid(cell, 0)
        sys.exit(os.waitstatus_to_exitcode(status))
    try:
        enter_namespaces(CellLimits())
        give_up_rights(user_of(0), CellLimits())
    except OSError as error:
        sys.stderr.write(f"{error.strerror}\n")
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
