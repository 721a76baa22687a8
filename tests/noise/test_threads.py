"""Every element is worked on exactly once, whoever does it, and nothing goes on afterwards."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixdp.noise import add_noise
from matrixdp.noise.threads import over_ranges
from reference.noise import test_key


@given(size=st.integers(0, 300), threads=st.integers(1, 9), least=st.integers(1, 50))
def test_every_element_once(size: int, threads: int, least: int) -> None:
    seen = np.zeros(size, dtype=int)

    def work(first: int, last: int) -> None:
        seen[first:last] += 1

    over_ranges(work, size, threads, least)
    assert (seen == 1).all()


def test_ranges_are_worked_on_at_once() -> None:
    meeting = threading.Barrier(3, timeout=20.0)

    def meet(_first: int, _last: int) -> None:
        meeting.wait()

    over_ranges(meet, 3, 3, 1)


def test_the_caller_does_what_no_helper_has_begun() -> None:
    release, begun = threading.Event(), threading.Event()
    done: list[str] = []

    def slow(first: int, _last: int) -> None:
        if first:
            begun.set()
            release.wait(20.0)
        else:
            begun.wait(20.0)  # so that it is a helper that begins the other

    def quick(_first: int, _last: int) -> None:
        done.append(threading.current_thread().name)

    with ThreadPoolExecutor(1) as other:
        held = other.submit(over_ranges, slow, 2, 2, 1)
        assert begun.wait(20.0)
        over_ranges(quick, 2, 2, 1)  # the only helper is busy
        assert not held.done()
        release.set()
        held.result()
    assert done == [threading.current_thread().name] * 2


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_is_raised_when_nothing_is_at_work_any_more(failing: int) -> None:
    at_work: set[int] = set()

    def work(first: int, _last: int) -> None:
        if first == failing:
            raise ZeroDivisionError
        at_work.add(first)
        time.sleep(0.05)
        at_work.discard(first)

    with pytest.raises(ZeroDivisionError):
        over_ranges(work, 3, 3, 1)
    assert not at_work


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
