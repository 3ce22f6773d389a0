"""What the client raises. Each message is one sentence, the service's own where it gave one."""

from __future__ import annotations


class DesktopServiceError(Exception):
    """The service refused a call, or could not be asked."""

    def __init__(self, sentence: str, status: int | None = None, failure_class: str | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        """The status of HTTP; None where there was no reply."""
        self.failure_class = failure_class
        """Why a lease ended, where the service said so."""


class LeaseOver(DesktopServiceError):
    """The lease is over: released, silent for too long, or lost with its desktop or the service."""


class NoDesktop(DesktopServiceError):
    """No desktop came in time, or the item could not be set up on it; another try may go better."""


class QuotaUsedUp(DesktopServiceError):
    """The token has as many leases as it may."""


class ServiceUnreachable(DesktopServiceError):
    """The service did not answer for as long as the client was willing to try."""
