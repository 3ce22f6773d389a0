"""The calls of clients on leases, as coroutines that both HTTP and the WebSocket carry: nothing blocks the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from pydantic import ValidationError

from rollout_tasks.errors import FailureClass
from rollout_tasks.http_services.client_presence import client_gone, has_gone
from rollout_tasks.http_services.token_holders import TokenHolder
from rollout_tasks.service import session_results
from rollout_tasks.service.lending import messages
from rollout_tasks.service.lending.lease_book import LeaseBook, LentDesktop
from rollout_tasks.service.lending.lent_items import bare_item, chosen_item
from rollout_tasks.service.lending.open_requests import OpenRequests
from rollout_tasks.service.lending.places import WaitingPlaces
from rollout_tasks.service.lending.refusal import Refusal, refusing
from rollout_tasks.service.lending.shown_leases import shown_end, shown_lease, shown_observation, shown_step

_BEGINNERS = 4
"""Threads that begin leases: processes are forked one after the other anyway."""
_SPARE_THREADS = 32
_RELEASE_SECONDS = 10.0
"""How long a release waits for the desktop to be given back, so that a client's next lease is within its quota."""
_Made = TypeVar("_Made")


class LeaseCalls:
    """What clients do with leases. All methods are called in one event loop."""

    def __init__(self, book: LeaseBook, places: WaitingPlaces | None, ttl_seconds: float) -> None:
        """Starts no thread yet.

        Args:
            book: The leases.
            places: The queue of the pool; None if desktops are not of a pool.
            ttl_seconds: How long a client may be silent.
        """
        self.book = book
        self.requests = OpenRequests(book.most_of)
        self.ttl_seconds = ttl_seconds
        self._places = places
        most = book.sessions.most
        # Of each lease one thread may wait for its desktop, one for an act after another call, one for its evaluation, and one
        # for its end.
        self._threads = ThreadPoolExecutor(4 * most + _SPARE_THREADS, thread_name_prefix="leases")
        self._beginners = ThreadPoolExecutor(_BEGINNERS, thread_name_prefix="beginning leases")

    def close(self) -> None:
        """Takes no more calls; the sessions are closed by whoever made them."""
        for threads in (self._beginners, self._threads):
            threads.shutdown(wait=False, cancel_futures=True)

    async def acquire(self, holder: TokenHolder, request: messages.LeaseRequest) -> LentDesktop:
        """Begins a lease, or finds the one of its key, and waits for its desktop as long as the request allows.

        Raises:
            Refusal: It cannot begin, or could not be set up.
        """

        def begin() -> LentDesktop:
            item = chosen_item(self.book.sessions, request)
            bare = item is None
            lease_id = self.book.new_id(holder, request.key)
            what = bare_item(self.book.sessions) if item is None else item
            return self.book.begin(holder, lease_id, what, index=request.index, bare=bare)

        lent = await self._in(self._beginners, begin)
        await self.settle(lent, request.wait_seconds)
        raise_if_not_set_up(lent)
        return lent

    async def emulator(self, holder: TokenHolder, lease_id: str) -> LentDesktop:
        """Begins a lease of a bare desktop with ports, and waits for the desktop; ends it if its client goes away.

        Raises:
            Refusal: It cannot begin, or no desktop came.
        """
        item = await self._in(self._beginners, partial(bare_item, self.book.sessions))
        begin = partial(self.book.begin, holder, lease_id, item, bare=True, emulator=True)
        lent = await self._in(self._beginners, begin)
        try:
            await self.settle(lent, None)
        finally:
            if not lent.session.ready or await has_gone():
                lent.session.stop("its client went away")
        raise_if_not_set_up(lent)
        return lent

    async def settle(self, lent: LentDesktop, seconds: float | None) -> None:
        """Waits until a lease's desktop is there with its item, or the lease is over, or its client went away.

        Args:
            lent: The lease.
            seconds: The longest wait; None: as long as it takes.
        """
        session = lent.session
        session.used = time.monotonic()
        if session.ready or session.end is not None:
            return
        if lent.settled is None:
            lent.settled = asyncio.get_running_loop().run_in_executor(self._threads, session.settle)
        if seconds == 0:
            return
        gone = await self._until(lent.settled, seconds)
        if not gone:
            session.used = time.monotonic()

    async def show(self, lent: LentDesktop) -> messages.Lease:
        """Returns a lease as it stands."""
        place, waiting = None, None
        if lent.session.end is None and lent.session.fence is None and self._places is not None:
            place, waiting = await self._places.place(lent.id)
        return shown_lease(lent, self.ttl_seconds, place, waiting)

    async def renew(self, lent: LentDesktop, fence: int) -> messages.Lease:
        """Says that the client is still there.

        Raises:
            Refusal: The fence is another lease's, or the lease is over.
        """
        self._touch(lent, fence)
        return await self.show(lent)

    async def observe(self, lent: LentDesktop, fence: int) -> bytes:
        """Returns the latest observation, as JSON.

        Raises:
            Refusal: As of `renew`, or the item is not set up yet.
        """
        self._touch(lent, fence)
        observation = lent.session.observation
        if observation is None:
            raise Refusal(409, "the item is not set up yet")
        turn = lent.session.turn
        return await self._in(self._threads, lambda: shown_observation(observation, turn).model_dump_json().encode())

    async def act(self, lent: LentDesktop, request: messages.ActRequest) -> tuple[bytes, float]:
        """Carries out one act, once for each key.

        Returns:
            The step as JSON, and the seconds that the desktop took.

        Raises:
            Refusal: The fence is another lease's, the lease or its episode is over, or the key is that of another act.
        """
        self.check_fence(lent, request.fence)
        act = (request.key, request.name, request.arguments)
        if lent.act is not None and lent.act[0] == request.key and lent.act != act:
            raise Refusal(409, f"the key {request.key} names another act: each act needs a new one")
        if _being_evaluated(lent) and not (lent.acting is not None and lent.act == act):
            raise Refusal(409, "the episode is over: it is being evaluated")  # which a new act would wait for
        if lent.acting is None or (lent.acting.done() and not _being_evaluated(lent)):
            step = lent.session.try_act(request.name, request.arguments, request.key)
            if step is not None and step.done():  # refused, or sent again, perhaps late: it keeps no other act waiting
                if step.exception() is None:
                    lent.act = act
                with refusing():
                    return await self._in(self._threads, lambda: shown_step(step.result()))
            lent.act = act
            lent.acting = self._acting(lent, request, step)
        elif lent.act != act:
            raise Refusal(409, "an earlier act of this lease is still being carried out")
        with refusing():
            return await asyncio.shield(lent.acting)

    async def evaluate(self, lent: LentDesktop, request: messages.EvaluateRequest) -> messages.End | None:
        """Ends the episode and scores it; repeated, it returns the same.

        Returns:
            How it ended; None if that takes longer than the request allows.

        Raises:
            Refusal: The fence is another lease's, the item is not set up yet, or there is nothing to evaluate.
        """
        self.check_fence(lent, request.fence)
        if lent.bare:
            raise Refusal(409, "a bare desktop has no task to evaluate: release it")
        if lent.session.end is None and not lent.session.ready:
            raise Refusal(409, "the item is not set up yet")
        if lent.evaluation is None:
            loop, call = asyncio.get_running_loop(), self.book.sessions.evaluate
            lent.evaluation = loop.run_in_executor(self._threads, call, lent.id, request.fence)
        await self._until(lent.evaluation, request.wait_seconds)
        if not lent.evaluation.done():
            return None
        with refusing():
            return shown_end(lent.evaluation.result())

    def score_on_record(self, holder: TokenHolder, lease_id: str, fence: int) -> messages.End | None:
        """Returns the end of a lease that an earlier service evaluated: its reply may have been lost with it. None without one.

        Raises:
            Refusal: The fence is another lease's.
        """
        facts = self.book.end_on_record(holder, lease_id)
        try:
            end = messages.End.model_validate(facts)
        except ValidationError:  # there is none, or it is damaged
            return None
        if end.reward is None:
            return None
        if facts.get("fence") != fence:
            raise _other_fence(fence)
        return end

    async def release(self, lent: LentDesktop) -> bool:
        """Ends a lease whatever it does, and waits a moment until its desktop is given back. Many may wait for the same end.

        Returns:
            Whether it went on until now.
        """
        if lent.releasing is None or lent.releasing.done():
            lent.releasing = asyncio.get_running_loop().run_in_executor(self._threads, self._end, lent)
        return await asyncio.shield(lent.releasing)

    def _end(self, lent: LentDesktop) -> bool:
        going_on = self.book.sessions.release(lent.id)
        lent.session.wait_until_ended(_RELEASE_SECONDS)
        return going_on

    def _acting(
        self, lent: LentDesktop, request: messages.ActRequest, step: Future[session_results.Step] | None
    ) -> asyncio.Future[tuple[bytes, float]]:
        """Returns what an act that was begun will return. No thread waits for it: each handover takes time.

        Args:
            lent: The lease.
            request: The act.
            step: What becomes of it; None if another call of the lease has to end first, for which a thread waits.
        """
        session, loop = lent.session, asyncio.get_running_loop()
        if step is None:
            act = partial(session.act, request.name, request.arguments, request.key)
            return loop.run_in_executor(self._threads, lambda: shown_step(act()))
        shown: Future[tuple[bytes, float]] = Future()
        shown.set_running_or_notify_cancel()  # it cannot be cancelled

        def show(done: Future[session_results.Step]) -> None:  # in the session's thread: screenshots take time
            try:
                shown.set_result(shown_step(done.result()))
            except BaseException as error:  # noqa: BLE001 (whoever asks for the result gets it)
                shown.set_exception(error)

        step.add_done_callback(show)
        acting = asyncio.wrap_future(shown)
        unresponsive = loop.call_later(session.patience, session.kill_unresponsive)
        acting.add_done_callback(lambda _: unresponsive.cancel())
        return acting

    def _touch(self, lent: LentDesktop, fence: int) -> None:
        self.check_fence(lent, fence)
        lent.session.used = time.monotonic()
        with refusing():
            lent.session.raise_if_ended()

    @staticmethod
    def check_fence(lent: LentDesktop, fence: int) -> None:
        """Raises if a call is not on this lease.

        Raises:
            Refusal: The fence is another lease's, or the lease has none yet.
        """
        known = lent.session.fence
        if known is None and lent.session.end is None:
            raise Refusal(409, "the lease still waits for a desktop: it has no fence yet")
        if known != fence:
            raise _other_fence(fence)

    async def _until(self, work: asyncio.Future[_Made], seconds: float | None) -> bool:
        """Waits for work that goes on by itself, no longer than this; returns whether the client went away meanwhile."""
        limit = None if seconds is None else min(seconds, self.ttl_seconds / 2)
        gone = client_gone()
        waits: set[asyncio.Future[object]] = {work}  # type: ignore[arg-type]
        going = None if gone is None else asyncio.ensure_future(gone.wait())
        if going is not None:
            waits.add(going)  # type: ignore[arg-type]
        try:
            await asyncio.wait(waits, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if going is not None:
                going.cancel()
        return gone is not None and gone.is_set()

    async def _in(self, threads: ThreadPoolExecutor, call: Callable[[], _Made]) -> _Made:
        return await asyncio.get_running_loop().run_in_executor(threads, call)


def raise_if_not_set_up(lent: LentDesktop) -> None:
    """Raises if a lease is over, and says whether trying again may help.

    Raises:
        Refusal: It is over: because there was no desktop for it (503), or otherwise (410).
    """
    session = lent.session
    end = session.end
    if end is None:
        return
    infrastructure = end.failure_class is not None and end.failure_class is not FailureClass.CANCELLED
    if infrastructure and not session.tools:
        raise Refusal(503, f"no desktop: {end.error}", end.failure_class)
    with refusing():
        session.raise_if_ended()


def _other_fence(fence: int) -> Refusal:
    return Refusal(409, f"the fence {fence} is not that of the lease")


def _being_evaluated(lent: LentDesktop) -> bool:
    return lent.evaluation is not None and not lent.evaluation.done()
