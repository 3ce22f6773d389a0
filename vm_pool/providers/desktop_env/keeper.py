"""The keeper's program: holds one of desktop-env's VMs, obeys commands, and stops the VM when its input ends.

Each input line is a JSON object with a command, each output line the answer. desktop-env prints and logs to stderr.
A record file says which VM is held, so that another keeper can stop it if this one is killed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from desktop_image.locks import hold_file, locked
from vm_pool.providers.desktop_env.adapter import Adapter, Gone, Unavailable, VMSettings, words_of
from vm_pool.providers.desktop_env.adapters import ADAPTERS
from vm_pool.providers.desktop_env.keeper_files import lock_of, write_record

_FIND_SECONDS = 3600.0
"""How long to wait for other keepers, which make their VMs one after another."""
_HAND_OVER_SECONDS = 2.0
"""How long a keeper that hangs may need to end, once another one stops its VM."""
log = logging.getLogger("keeper")


class Keeper:
    """The VM that is held, and the commands for it.

    Args:
        record: The file that names the VM; contains the request that the keeper was started with.
    """

    def __init__(self, record: Path) -> None:
        self._record = record
        self._request: dict[str, Any] = json.loads(record.read_text())
        self._adapter: Adapter | None = None
        self._taken: str | None = None
        self._making = threading.Lock()
        self._wanted = True

    @property
    def stop_seconds(self) -> float:
        """How long stopping may take."""
        return float(self._request["stop_seconds"])

    def answer(self, word: str) -> Any:
        """Executes one command.

        Raises:
            Exception: Any failure.
        """
        match word:
            case "check":
                return self._tool().name
            case "find":
                return self._find()
            case "start":
                return self._start()
            case "revert":
                self._revert()
                return self._tool().address(self._path())
            case "stop":
                return self.stop()
        raise ValueError(f"no keeper knows how to {word}")

    def make_no_more(self) -> None:
        """Lets no VM be made from now on; waits for one that is being made, up to the time that finding one may take."""
        self._wanted = False
        if self._making.acquire(timeout=self._request.get("find_seconds", self.stop_seconds)):
            self._making.release()

    def stop(self, *, abandoned: bool = False) -> None:
        """Stops the VM, if one is held and no other keeper has taken it since, and deletes its record.

        Args:
            abandoned: Whether nothing but the record says that the VM is of this account.

        Raises:
            Exception: It may still run.
        """
        if self._request["path"] is not None or self._tool().shares_path:
            path = self._request["path"] or ""
            try:
                if not self._tool().reuses_vms or self._takes(path, seconds=_HAND_OVER_SECONDS):
                    self._tool().stop(path)
                else:
                    log.info("%s is in use by another keeper by now", path)
            except Gone as gone:
                account = self._request.get("account")
                if abandoned if account is None else account != self._tool().account():
                    raise RuntimeError(
                        f"{path} may be another account's or region's: end it there, then delete {self._record}: {gone}"
                    ) from gone
                log.warning("%s is gone: %s", path, gone)
        lock_of(self._request["provider"], self._request["vm_id"]).unlink(missing_ok=True)
        self._record.with_suffix(".log").unlink(missing_ok=True)
        self._record.unlink(missing_ok=True)  # last: without a record, another keeper may make and lock these files

    def _tool(self) -> Adapter:
        if self._adapter is None:
            request = self._request
            settings = VMSettings(
                vm_id=request["vm_id"],
                paths=tuple(request["paths"]),
                region=request["region"],
                snapshot_name=request["snapshot_name"],
                headless=request["headless"],
                os_type=request["os_type"],
                screen=(request["screen"][0], request["screen"][1]),
            )
            self._adapter = ADAPTERS[request["provider"]](request["provider"], settings)
        return self._adapter

    def _find(self) -> str:
        adapter, paths = self._tool(), self._request["paths"]
        self._request["account"] = adapter.account()
        if not paths:
            with _only_one(Path("finding.lock")), self._until_recorded():
                path = adapter.find()
                if adapter.reuses_vms and not self._takes(path):
                    raise RuntimeError(f"{path} is in use already")
                self._keep(path)
        elif adapter.shares_path:
            self._keep(paths[0])
        else:
            self._keep(self._first_unused(paths))
        return self._path()

    def _start(self) -> str:
        adapter = self._tool()
        adapter.start(self._path())
        if adapter.reverts_at_start:
            self._revert()
        return adapter.address(self._path())

    def _revert(self) -> None:
        with self._until_recorded():
            self._keep(self._tool().revert(self._path()))
        self._tool().start(self._path())

    @contextmanager
    def _until_recorded(self) -> Iterator[None]:
        """Has `make_no_more` wait for the body, if that makes a VM: until it is recorded, nothing else can stop it.

        Raises:
            RuntimeError: Nobody wants the VM any more.
        """
        if not self._tool().deletes_vms:
            yield
            return
        with self._making:
            if not self._wanted:
                raise RuntimeError("no VM is made any more: the keeper is to end")
            yield

    def _first_unused(self, paths: list[str]) -> str:
        """Returns the first VM that no other keeper holds."""
        for path in paths:
            if self._takes(path):
                return path
        named = f"the {len(paths)} VMs that path_to_vm names are" if len(paths) > 1 else f"{paths[0]} is"
        raise RuntimeError(f"{named} in use already: name one for each VM of this machine")

    def _takes(self, path: str, *, seconds: float = 0.0) -> bool:
        """Takes a VM until this process ends; returns whether no other keeper has it."""
        name = os.path.abspath(path) if Path(path).exists() else path  # noqa: PTH100 (a link's name is a VM's, too)
        if self._taken != name:
            lock = hold_file(Path(f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.lock"), seconds=seconds)
            if lock is None:
                return False
            self._taken = name
        return True

    def _path(self) -> str:
        path = self._request["path"]
        if path is None:
            raise RuntimeError("no VM was found yet")
        return str(path)

    def _keep(self, path: str) -> None:
        self._request["path"], self._request["region"] = path, self._tool().region
        write_record(self._record, self._request)


@contextmanager
def _only_one(file: Path) -> Iterator[None]:
    """A lock among all keepers of this folder: desktop-env gives VMs that are made at the same time the same name."""
    with locked(file, seconds=_FIND_SECONDS) as alone:
        if not alone:
            raise RuntimeError(f"another process has been making a VM for {_FIND_SECONDS / 60:.0f} minutes")
        yield


def main(record: Path) -> int:
    """Serves until the input ends, then stops the VM. If that hangs, a second keeper takes over."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    keeper = Keeper(record)
    words: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(words, keeper, record), daemon=True).start()
    while word := words.get():
        try:
            answer = {"value": keeper.answer(word)}
        except Unavailable as error:
            answer = {"error": str(error), "unavailable": True}
        except BaseException as error:  # noqa: BLE001 (the border to desktop-env, which raises anything)
            log.warning("%s: %s", word, error)
            answer = {"error": words_of(error)}
        with suppress(BrokenPipeError):  # the client is gone; the end of the input comes next
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        if word == "stop":
            break
    if record.exists():
        keeper.stop()
    return 0


def _listen(words: queue.SimpleQueue[str], keeper: Keeper, record: Path) -> None:
    for line in sys.stdin:
        words.put(json.loads(line)["do"])
    words.put("")
    keeper.make_no_more()
    threading.Event().wait(keeper.stop_seconds)
    try:
        if record.exists():
            subprocess.Popen([sys.executable, "-P", "-m", __spec__.name, "stop", record], start_new_session=True)  # noqa: S603
    finally:
        os._exit(1)


def stop_only(record: Path) -> int:
    """Stops the VM that a killed keeper had held."""
    keeper = Keeper(record)
    limit = threading.Timer(keeper.stop_seconds, os._exit, (1,))
    limit.daemon = True  # or a failure would only end this process then
    limit.start()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    keeper.stop(abandoned=True)
    os._exit(0)


if __name__ == "__main__":
    sys.exit((stop_only if sys.argv[1] == "stop" else main)(Path(sys.argv[2])))
