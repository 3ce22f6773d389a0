"""What `rootless` runs as the root of a user namespace: ``python -m vm_pool.guest kernel|PROFILE FOLDER``.

A sentence a line on standard output; on failure, the reason at last.
"""

from __future__ import annotations

import sys
from pathlib import Path

from vm_pool.guest import disk, kernel
from vm_pool.guest.errors import GuestBuildError


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


def _main(what: str, target: Path) -> int:
    try:
        if what == "kernel":
            kernel.build(target, _say)
        else:
            disk.build_from_nothing(what, target, _say)
    except GuestBuildError as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], Path(sys.argv[2])))
