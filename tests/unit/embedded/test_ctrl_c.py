"""Ctrl-C where Python ignores what a signal handler raises: the program ends a little later, and says nothing of it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest

from rollout_tasks.embedded.ctrl_c import SIGNALS, CtrlC, StopRequested, held_back


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Restores what `caught` leaves when a signal came, and what these tests may be started with: nohup ignores SIGHUP."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Anything:
    pass


def press(_gone: object = None) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):  # the handler runs between two of these
        pass


def press_where_it_is_ignored() -> None:
    """In a callback of the collector, whose errors Python reports, but does not raise."""
    thing = Anything()
    watched = weakref.ref(thing, press)
    del thing
    assert watched() is None


def test_what_is_ignored_in_a_callback_ends_the_program_at_the_next_check(capfd: pytest.CaptureFixture[str]) -> None:
    ctrl_c = CtrlC()
    with pytest.raises(StopRequested), ctrl_c.caught():
        press_where_it_is_ignored()
        assert ctrl_c.count == 1, "it came, and nothing was raised"
        ctrl_c.check()
    assert ctrl_c.stop_now
    assert capfd.readouterr() == ("", "")


def test_a_second_signal_does_not_come_out_of_the_cleaning_up() -> None:
    ctrl_c, cleaned_up = CtrlC(), False
    with pytest.raises(StopRequested), ctrl_c.caught():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGHUP)
            press()
            cleaned_up = True
    assert cleaned_up
    assert ctrl_c.count == 3


def test_what_was_ignored_is_raised_by_the_next_signal() -> None:
    ctrl_c = CtrlC()
    with pytest.raises(StopRequested), ctrl_c.caught():
        press_where_it_is_ignored()
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("it was not raised")


def test_without_a_signal_a_check_does_nothing() -> None:
    ctrl_c = CtrlC()
    with ctrl_c.caught():
        ctrl_c.check()


def test_nohup_keeps_a_run_going_when_its_terminal_is_closed() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ctrl_c = CtrlC()
    with ctrl_c.caught():
        os.kill(os.getpid(), signal.SIGHUP)
        ctrl_c.check()
    assert (ctrl_c.count, signal.getsignal(signal.SIGHUP)) == (0, signal.SIG_IGN)


@pytest.mark.parametrize("number", [number for number in SIGNALS if number is not signal.SIGHUP])
def test_a_run_in_a_scripts_background_hears_of_signals(number: signal.Signals) -> None:
    """There the shell has it ignore Ctrl-C from the start."""
    signal.signal(number, signal.SIG_IGN)
    ctrl_c = CtrlC()
    with pytest.raises(StopRequested), ctrl_c.caught():
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        pytest.fail("it was not raised")
    assert ctrl_c.count


def test_a_first_ctrl_c_that_finishes_running_work_ends_nothing() -> None:
    ctrl_c = CtrlC()
    ctrl_c.finish_first = True
    with ctrl_c.caught():
        os.kill(os.getpid(), signal.SIGINT)
        ctrl_c.check()
        assert ctrl_c.drain_wanted


def test_other_errors_that_python_ignores_are_still_reported() -> None:
    reported: list[sys.UnraisableHookArgs] = []
    before, sys.unraisablehook = sys.unraisablehook, reported.append
    try:
        with CtrlC().caught():
            thing = Anything()
            watched = weakref.ref(thing, lambda _gone: 1 // 0)
            del thing
            assert watched() is None
        assert sys.unraisablehook == reported.append
    finally:
        sys.unraisablehook = before
    assert [error.exc_type for error in reported] == [ZeroDivisionError]


def test_what_is_held_back_is_handled_at_the_end_each_signal_as_often_as_it_came() -> None:
    ctrl_c, inside = CtrlC(), []
    ctrl_c.finish_first = True
    with pytest.raises(StopRequested), ctrl_c.caught():
        with held_back():
            press()
            inside.append(ctrl_c.count)
        inside.append(ctrl_c.count)
        ctrl_c.check()
        with held_back():
            press()
            os.kill(os.getpid(), signal.SIGTERM)
            press()
            inside.append(ctrl_c.count)
    assert inside == [0, 1, 1]
    assert ctrl_c.count == 4
    assert [signal.getsignal(number) for number in SIGNALS] == [ctrl_c._handle] * 3


def test_nothing_needs_to_be_held_back_in_another_thread() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]

    def hold() -> None:
        with held_back():
            inside.extend(signal.getsignal(number) for number in SIGNALS)

    inside: list[object] = []
    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert inside == before
