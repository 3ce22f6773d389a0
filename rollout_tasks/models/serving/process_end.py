"""The end of a process that was seen before, and never that of another one which has its id by now."""

from __future__ import annotations

import os
import signal
from types import TracebackType

from vm_pool.processes import ends_within, has_ended, name_of


class ProcessEnd:
    """A process that is to end, held so that its id stays its own: for a `with` block."""

    def __init__(self, pid: int, name: str) -> None:
        """Takes hold of it; sends nothing yet.

        Args:
            pid: Its id.
            name: What `vm_pool.processes.name_of` said when it was seen: machine, id and start time.
        """
        self._descriptor: int | None = None
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        if name and name_of(pid) == name and not has_ended(name):
            self._descriptor = descriptor
        else:
            os.close(descriptor)

    def __enter__(self) -> ProcessEnd:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def there(self) -> bool:
        """Whether the very process that was seen has not ended."""
        return self._descriptor is not None and not ends_within(self._descriptor, 0)

    def ask(self, seconds: float) -> bool:
        """Sends SIGTERM; returns whether it ends within `seconds`.

        Raises:
            PermissionError: It is another user's.
        """
        return self._sent(signal.SIGTERM, seconds)

    def kill(self, seconds: float) -> bool:
        """Sends SIGKILL; returns whether it ends within `seconds`.

        Raises:
            PermissionError: It is another user's.
        """
        return self._sent(signal.SIGKILL, seconds)

    def _sent(self, number: signal.Signals, seconds: float) -> bool:
        if self._descriptor is None:
            return True
        try:
            signal.pidfd_send_signal(self._descriptor, number)
        except ProcessLookupError:
            return True
        return ends_within(self._descriptor, seconds)
