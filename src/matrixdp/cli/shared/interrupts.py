"""Interrupts of work that is long and leaves no trace, and of what is written to a stream."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from matrixdp.interrupts import ProgramInterrupts

__all__ = ["first_interrupt_raised", "interrupted_at_once", "interrupts_ignored"]


@contextmanager
def interrupted_at_once() -> Iterator[None]:
    """Let an interrupt end the process at once, even within a call of LAPACK.

    Python handles an interrupt between its own instructions, and a decomposition of a large matrix
    is one instruction, which may take half a minute. In this block the operating system ends the
    process instead, and a shell reports 130. Nothing is cleaned up, so nothing may be written and
    nothing drawn in it.
    """
    former = signal.getsignal(signal.SIGINT)
    # Only the main thread may set handlers. One that is neither Python's nor the program's own is
    # somebody's decision, such as nohup's to ignore interrupts.
    mine = threading.current_thread() is threading.main_thread()
    known = former is signal.default_int_handler or isinstance(former, ProgramInterrupts)
    if not mine or not known:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


@contextmanager
def first_interrupt_raised() -> Iterator[None]:
    """Let the first interrupt of the block raise, although a release is out; others are ignored.

    For a block that must be possible to stop, and that turns the interrupt into an error which says
    that the release is out.
    """

    def first(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Let no interrupt stop the block, which finds out what an earlier one has left."""
    mine = threading.current_thread() is threading.main_thread()
    former = signal.getsignal(signal.SIGINT)
    if not mine or former is None:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
