"""Every element is worked on exactly once, whoever does it, and nothing goes on afterwards."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.noise import ReleaseKey, add_noise
from matrixdp.noise.application.threads import over_ranges
from reference.noise import test_key

START = threading.Thread.start


@given(size=st.integers(0, 300), threads=st.integers(1, 9), least=st.integers(1, 50))
def test_every_element_once(size: int, threads: int, least: int) -> None:
    seen = np.zeros(size, dtype=int)

    def work(first: int, last: int) -> None:
        seen[first:last] += 1

    over_ranges(work, size, threads, least)
    assert (seen == 1).all()


def test_ranges_are_worked_on_at_once() -> None:
    meeting = threading.Barrier(3, timeout=20.0)
    names: list[str] = []

    def meet(_first: int, _last: int) -> None:
        names.append(threading.current_thread().name)
        meeting.wait()

    over_ranges(meet, 3, 3, 1)
    assert len(set(names)) == 3
    assert threading.current_thread().name in names


def test_no_thread_outlives_its_call() -> None:
    before = threading.active_count()
    for _ in range(20):
        over_ranges(lambda _first, _last: None, 4, 4, 1)
    assert comes_true(lambda: threading.active_count() <= before)


def comes_true(condition: Callable[[], bool]) -> bool:
    """Return whether a condition comes true: a thread that has done its work is still to end."""
    for _ in range(2000):
        if condition():
            return True
        time.sleep(0.01)
    return False


class Slow:
    """Work that takes a while, and knows which ranges were begun and not finished."""

    def __init__(self, failing: int = -1) -> None:
        self.failing = failing
        self.begun: set[int] = set()
        self.finished: set[int] = set()

    def __call__(self, first: int, _last: int) -> None:
        self.begun.add(first)
        if first == self.failing:
            raise ZeroDivisionError
        time.sleep(0.1)
        self.finished.add(first)

    def at_work(self) -> set[int]:
        return self.begun - self.finished - {self.failing}


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_is_raised_when_nothing_is_at_work_any_more(failing: int) -> None:
    work = Slow(failing)
    with pytest.raises(ZeroDivisionError):
        over_ranges(work, 3, 3, 1)
    assert not work.at_work()


@pytest.mark.parametrize("by_helper", [True, False], ids=["helper", "caller"])
def test_what_nobody_has_claimed_is_dropped_after_an_error(
    monkeypatch: pytest.MonkeyPatch, *, by_helper: bool
) -> None:
    # Of five threads only two can be had, so that three ranges lie unclaimed.
    allow_helpers(monkeypatch, 1)
    both, failed = threading.Barrier(2, timeout=20.0), threading.Event()
    begun: list[int] = []

    def work(first: int, _last: int) -> None:
        begun.append(first)
        both.wait()
        if (threading.current_thread() is not threading.main_thread()) == by_helper:
            failed.set()
            raise ZeroDivisionError
        failed.wait(20.0)
        time.sleep(0.2)

    with pytest.raises(ZeroDivisionError):
        over_ranges(work, 5, 5, 1)
    assert sorted(begun) == [0, 1]


def test_the_first_error_of_several_helpers_is_raised() -> None:
    first_failed = threading.Event()
    helpers: Iterator[int] = iter(range(2))
    meeting = threading.Barrier(3, timeout=20.0)

    def work(_first: int, _last: int) -> None:
        meeting.wait()
        if threading.current_thread() is threading.main_thread():
            return
        if next(helpers) == 0:
            first_failed.set()
            raise ZeroDivisionError
        first_failed.wait(20.0)
        time.sleep(0.1)
        raise OverflowError

    with pytest.raises(ZeroDivisionError):
        over_ranges(work, 3, 3, 1)


def allow_helpers(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the system have no more than so many threads to give."""
    left = [None] * number

    def start(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        START(thread)

    monkeypatch.setattr(threading.Thread, "start", start)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_threads_that_cannot_be_started_are_done_without(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    value = np.zeros((300, 1000))
    expected = add_noise(value, 1.0, test_key(90))
    allow_helpers(monkeypatch, number)
    work = Slow()
    over_ranges(work, 4, 4, 1)
    assert work.finished == {0, 1, 2, 3}
    assert np.array_equal(add_noise(value, 1.0, test_key(90), threads=4), expected)


AT_EXIT = """
import atexit, threading, time
import numpy as np
from matrixdp.noise import ReleaseKey, add_noise

def release():
    print(add_noise(np.zeros((300, 1000)), 1.0, ReleaseKey.generate(), threads=3).shape)

def later():
    time.sleep(0.3)
    release()

atexit.register(release)
threading.Thread(target=later).start()
"""


def test_a_release_while_the_interpreter_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split("\n") == ["(300, 1000)", "(300, 1000)", ""]
    assert not done.stderr


def interrupt_main_thread() -> None:
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


@pytest.mark.skipif(sys.platform == "win32", reason="no pthread_kill")
@pytest.mark.parametrize("interrupts", [1, 3])
def test_an_interrupt_waits_for_the_helpers(interrupts: int) -> None:
    # Until the helper has begun the caller is at work, afterwards it waits.
    begun, finished = threading.Event(), threading.Event()

    def work(_first: int, _last: int) -> None:
        if threading.current_thread() is threading.main_thread():
            assert begun.wait(20.0)
            return
        begun.set()
        for _ in range(interrupts):
            time.sleep(0.2)
            interrupt_main_thread()
        time.sleep(0.2)
        finished.set()

    with pytest.raises(KeyboardInterrupt):
        over_ranges(work, 2, 2, 1)
    assert finished.is_set()


@pytest.mark.skipif(sys.platform == "win32", reason="no pthread_kill")
@pytest.mark.parametrize("by_helper", [True, False], ids=["helper", "caller"])
def test_an_interrupt_counts_more_than_an_error(*, by_helper: bool) -> None:
    meeting = threading.Barrier(2, timeout=20.0)

    def work(_first: int, _last: int) -> None:
        meeting.wait()
        is_helper = threading.current_thread() is not threading.main_thread()
        if is_helper:
            time.sleep(0.2)
            interrupt_main_thread()
            time.sleep(0.2)
        if is_helper == by_helper:
            raise ZeroDivisionError

    with pytest.raises(KeyboardInterrupt):
        over_ranges(work, 2, 2, 1)


def test_an_interrupt_while_a_thread_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    work = Slow()

    def start(thread: threading.Thread) -> None:
        started.append(thread)
        START(thread)
        assert comes_true(lambda: bool(work.begun))
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        over_ranges(work, 4, 4, 1)
    assert work.begun == work.finished
    assert len(started) == len(work.begun) == 1


def test_an_interrupt_within_the_waiting_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if it came when the caller is about to wait, before it has begun to.
    work = Slow()
    interrupted: list[bool] = []

    class Interrupting:
        """A lock; the first to take it in the main thread is interrupted just before."""

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __enter__(self) -> None:
            if threading.current_thread() is threading.main_thread() and not interrupted:
                interrupted.append(True)
                raise KeyboardInterrupt
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    monkeypatch.setattr("matrixdp.noise.application.threads.Lock", Interrupting)
    with pytest.raises(KeyboardInterrupt):
        over_ranges(work, 3, 3, 1)
    assert interrupted
    assert work.begun == work.finished


class Tracked(np.ndarray[Any, Any]):
    """An array that can be watched until it is gone."""


def refused(threads: int) -> weakref.ref[NDArray[Any]]:
    """Let a value be refused; return what tells whether it still exists."""
    value = np.full((1000, 2000), np.nan).view(Tracked)
    with pytest.raises(InvalidParameterError, match="finite"):
        add_noise(value, 1.0, ReleaseKey.generate(), threads=threads)
    return weakref.ref(value)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_refused_value_is_not_kept(threads: int) -> None:
    gc.disable()
    try:
        watched = refused(threads)
        assert comes_true(lambda: watched() is None)
    finally:
        gc.enable()


@pytest.mark.skipif(sys.platform == "win32", reason="no pthread_kill")
def test_an_interrupted_value_is_not_kept() -> None:
    def interrupted() -> weakref.ref[NDArray[Any]]:
        value = np.zeros(3).view(Tracked)

        def work(first: int, _last: int) -> None:
            if threading.current_thread() is threading.main_thread():
                time.sleep(0.1)  # so that the helper has a range
                return
            value[first] = 1.0
            time.sleep(0.2)
            interrupt_main_thread()
            raise ZeroDivisionError

        try:
            over_ranges(work, 2, 2, 1)
        except KeyboardInterrupt:
            return weakref.ref(value)
        pytest.fail("was not interrupted")

    gc.disable()
    try:
        watched = interrupted()
        assert comes_true(lambda: watched() is None)
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_threads_after_a_fork() -> None:
    value = np.zeros((300, 1000))
    expected = add_noise(value, 1.0, test_key(90), threads=3)
    child = os.fork()
    if child == 0:
        failed = True
        try:
            found = add_noise(value, 1.0, test_key(90), threads=3)
            failed = not np.array_equal(found, expected)
        finally:
            os._exit(failed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
