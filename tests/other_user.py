"""A user of this machine without root's rights, who exists for one test: in a mount namespace, where /etc says so."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.virtual_machines import wait_until

NAME = "visitor"
ID = 400_000 + os.getpid() % 10_000
"""Another one for each process of tests that run at the same time."""
FIRST_LENT = 1_000_000_000 + (ID - 400_000) * 65_536
_BECOME = """
set -eu
scratch=$1 user=$2 lent=$3 closed=$4
shift 4
mount -t tmpfs none "$scratch"
overlay() {
    made=$scratch$1
    mkdir -p "$made/upper" "$made/work"
    mount -t overlay none -o "lowerdir=$1,upperdir=$made/upper,workdir=$made/work" "$1"
}
overlay /etc
echo "$user" >>/etc/passwd
echo "$lent" | tee /etc/subuid >/etc/subgid
for folder in $closed; do
    overlay "$folder"
    chmod 755 "$folder"
done
exec setpriv "$@"
"""

needs_lent_ids = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("newuidmap") is None, reason="needs root, and newuidmap (apt-get install uidmap)"
)


class OtherUser:
    """The user, his home, and a copy of the repository in it.

    Args:
        home: A folder that everybody may reach.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.repository = home / "clone"
        ignored = shutil.ignore_patterns(".*", "results", "__pycache__", "*.egg-info")
        shutil.copytree(REPOSITORY, self.repository, ignore=ignored)
        for name in (".venv", ".uv"):
            if (REPOSITORY / name).exists():
                (self.repository / name).symlink_to(REPOSITORY / name)
        for path in (home, *home.rglob("*")):
            os.chown(path, ID, ID, follow_symlinks=False)

    @property
    def cache(self) -> Path:
        """Where his guest images are."""
        return self.home / ".cache" / "computer-use-rollouts"

    def run(self, *command: str, seconds: float, lends: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a command of his in the copy; nothing of it goes on afterwards.

        Args:
            command: The command.
            seconds: How long it may take.
            lends: Whether the system lends him ids.
        """
        lent = f"{NAME if lends else 'another'}:{FIRST_LENT}:65536"
        passwd = f"{NAME}:x:{ID}:{ID}::{self.home}:/bin/sh"
        with tempfile.TemporaryDirectory() as scratch:
            full = ["unshare", "--mount", "sh", "-c", _BECOME, "sh", scratch, passwd, lent, " ".join(_closed())]
            full += [f"--reuid={ID}", f"--regid={ID}", "--clear-groups", *command]
            try:
                return subprocess.run(
                    full, cwd=self.repository, env=self._environment(), capture_output=True, text=True, timeout=seconds
                )
            finally:
                for pid in self.processes():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                wait_until(lambda: not self.processes())

    def processes(self) -> list[int]:
        """Everything that runs in his name, or under an id lent to him."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                owner = entry.stat().st_uid
                if entry.name.isdigit() and (owner == ID or FIRST_LENT <= owner < FIRST_LENT + 65_536):
                    found.append(int(entry.name))
        return found

    def _environment(self) -> dict[str, str]:
        mine = ("OPENAI_", "REDIS_", "XDG_", "PYTEST_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
        return {**inherited, "HOME": str(self.home), "USER": NAME, "PATH": "/usr/local/bin:/usr/bin:/bin"}


def _closed() -> list[str]:
    """The folders on the way to Python and to this repository that only root may enter, outermost first."""
    reached = {Path(sys.base_prefix), Path(sys.prefix), REPOSITORY}
    return sorted({str(folder) for path in reached for folder in path.parents if not folder.stat().st_mode & 0o001})


@pytest.fixture(scope="module")
def other_user() -> Iterator[OtherUser]:
    """A user who is not root, for the tests of a file."""
    with tempfile.TemporaryDirectory(prefix="visitor-") as home:
        Path(home).chmod(0o755)
        user = OtherUser(Path(home))
        yield user
        assert user.processes() == []
