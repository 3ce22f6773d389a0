"""Builds in namespaces: ``python -m desktop_image kernel|PROFILE FOLDER LOCK...`` as the root of a user namespace (`rootless`),
and ``python -m desktop_image extension FOLDER GIVEN LAYER...`` in its own mount namespace (`extension_layer`).

Each LOCK is the descriptor of a lock that the programs of the build inherit.
Prints one sentence per line; on failure, the last line is the reason.
"""

from __future__ import annotations

import sys
from pathlib import Path

from desktop_image import build_locks, disk, kernel, merged_root
from desktop_image.errors import GuestBuildError


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


def _main(what: str, target: Path, *others: str) -> int:
    try:
        if what == "extension":
            given, *lower = map(Path, others)
            code, _ = merged_root.run(target, given, lower, [f"/{merged_root.GIVEN}/extend.sh"], _say)
            return code
        with build_locks.inherited(map(int, others)):
            if what == "kernel":
                kernel.build(target, _say)
            else:
                disk.build_from_nothing(what, target, _say)
    except GuestBuildError as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
