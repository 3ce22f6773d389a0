"""Who may look at which lease's desktop: the views that holders of tokens asked for, kept in memory alone.

The holder gets an address with a ticket in its fragment, which no browser sends to a server: it is in no log and no `Referer`,
and a program that checks links does not use it up. The page hands the ticket in, once, and gets a cookie for this view. Only
digests of both are kept.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rollout_tasks.http_services.token_holders import TokenHolder, TokenHolders
from rollout_tasks.service.lending.lease_book import LentDesktop
from rollout_tasks.service.lending.refusal import Refusal

logger = logging.getLogger(__name__)

TICKET_SECONDS = 120.0
"""How long the address of a view works: as long as a person needs to open it."""
VIEW_SECONDS = 4 * 3600.0
"""The longest view."""
MOST_VIEWS = 4
"""Views of one lease at a time."""
MOST_SOCKETS = 4
"""Connections of one view: a person may have it in several windows."""
PURPOSE = "vnc"
_SECRET_BYTES = 32
_NO_SUCH_ADDRESS = "this address was used already, or is not known here: ask for a new view"


@dataclass(slots=True)
class View:
    """The right of a person to look at one lease's desktop."""

    id: str
    lent: LentDesktop
    asked: TokenHolder
    """Who asked for it: a view ends when that token is revoked."""
    help: bool
    """Whether the person may use keyboard and pointer, too."""
    ticket: bytes | None = field(repr=False)
    """A digest; None once it was handed in."""
    began: float
    """By the clock of the views."""
    cookie: bytes | None = field(default=None, repr=False)
    """A digest; None before the ticket is handed in."""
    sockets: int = 0

    def may_help(self) -> bool:
        """Returns whether the person may use the desktop now: not while it is set up, nor once it is to be scored."""
        session = self.lent.session
        goes_on = session.ready and session.over is None and not session.closed
        return self.help and goes_on and self.lent.evaluation is None

    def helped(self) -> None:
        """Notes that the person did: what the episode shows is not the agent's alone from now on."""
        if not self.lent.session.helped:
            self.lent.session.helped = True
            logger.info("lease %s: a person uses its desktop, in a view of %s", self.lent.id, self.asked.name)


class DesktopViews:
    """All views of one service. For one event loop."""

    def __init__(self, holders: TokenHolders, clock: Callable[[], float] = time.monotonic) -> None:
        """Begins with none.

        Args:
            holders: Who may use the service.
            clock: Returns seconds.
        """
        self._holders = holders
        self._clock = clock
        self._views: dict[str, View] = {}

    def begin(self, lent: LentDesktop, asked: TokenHolder, *, may_help: bool) -> tuple[View, str]:
        """Begins a view.

        Args:
            lent: The lease, which the token's holder may use.
            asked: That holder.
            may_help: Whether the person may use the desktop, too.

        Returns:
            The view, and its ticket.

        Raises:
            Refusal: The desktop shows nothing, or there are too many views.
        """
        _check_shows(lent)
        self._forget_ended()
        self._make_room(lent)
        ticket = secrets.token_urlsafe(_SECRET_BYTES)
        view = View(secrets.token_hex(16), lent, asked, may_help, _digest(ticket), self._clock())
        self._views[view.id] = view
        return view, ticket

    def exchange(self, view_id: str, ticket: str) -> str:
        """Takes a ticket, once, and returns what the cookie of the view holds.

        Raises:
            Refusal: It is wrong or was used (403), or the view is over (410).
        """
        view = self.unopened(view_id)
        if not hmac.compare_digest(view.ticket or b"", _digest(ticket)):
            raise Refusal(403, _NO_SUCH_ADDRESS)
        view.ticket = None
        if self._clock() - view.began > TICKET_SECONDS:
            raise Refusal(403, f"this address is older than {TICKET_SECONDS:g} s: ask for a new view")
        self.check(view)
        cookie = secrets.token_urlsafe(_SECRET_BYTES)
        view.cookie = _digest(cookie)
        return cookie

    def unopened(self, view_id: str) -> View:
        """Returns a view whose ticket was not handed in yet: of other requests with a ticket, nothing needs to be read.

        Raises:
            Refusal: There is none (403).
        """
        view = self._views.get(view_id)
        if view is None or view.ticket is None:
            raise Refusal(403, _NO_SUCH_ADDRESS)
        return view

    def find(self, view_id: str, cookie: str) -> View:
        """Returns a view that goes on, for who has its cookie.

        Raises:
            Refusal: The cookie is another's (403), or the view is over (410).
        """
        view = self._views.get(view_id)
        if view is None or view.cookie is None or not hmac.compare_digest(view.cookie, _digest(cookie)):
            raise Refusal(403, "this view is not yours, or is over: ask for a new one")
        self.check(view)
        return view

    def check(self, view: View) -> None:
        """Raises once a view is over.

        Raises:
            Refusal: One sentence says why.
        """
        if not self._holders.knows(view.asked):
            raise Refusal(410, "the token with which this view was asked for was revoked")
        if view.lent.session.closed:
            raise Refusal(410, "the lease is over, or about to be: its desktop is scored or reset")
        if self._clock() - view.began > VIEW_SECONDS:
            raise Refusal(410, f"the view is over after {VIEW_SECONDS / 3600:g} hours: ask for a new one")

    def _make_room(self, lent: LentDesktop) -> None:
        """Ends the oldest view of a lease that nobody is watching, if there are as many as there may be."""
        views = [one for one in self._views.values() if one.lent is lent]
        if len(views) < MOST_VIEWS:
            return
        oldest = next((one for one in views if not one.sockets), None)
        if oldest is None:
            raise Refusal(429, f"{MOST_VIEWS} views of the lease are open, which is the most: close one first")
        del self._views[oldest.id]

    def _forget_ended(self) -> None:
        for view in list(self._views.values()):
            unused = view.ticket is not None and self._clock() - view.began > TICKET_SECONDS
            try:
                self.check(view)
            except Refusal:
                unused = True
            if unused:
                del self._views[view.id]


def _check_shows(lent: LentDesktop) -> None:
    session = lent.session
    if session.closed:
        raise Refusal(410, "the lease is over")
    if session.fence is None:
        raise Refusal(409, "the lease still waits for a desktop: there is nothing to look at yet")
    if session.endpoint is None or PURPOSE not in session.endpoint.ports:
        raise Refusal(409, "this lease's environment shows nothing: it has no desktop with a VNC port")


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
