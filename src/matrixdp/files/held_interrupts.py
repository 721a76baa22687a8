"""Interrupts that wait for the end of a short block, so that it is done whole or not at all."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["interrupts_held"]


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let an interrupt wait until the block has ended.

    A block that fails takes the interrupt with it: there is an error already.
    """
    former = signal.getsignal(signal.SIGINT)
    # Only the main thread may set handlers, and only it is interrupted. None: not set by Python.
    if threading.current_thread() is not threading.main_thread() or former is None:
        yield
        return
    came = False

    def remember(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = True

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
    if came:
        # Whoever set the former handler decides what an interrupt means.
        signal.raise_signal(signal.SIGINT)
