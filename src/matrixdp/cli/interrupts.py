"""Interrupts of work that is long and leaves no trace."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["interrupted_at_once"]


@contextmanager
def interrupted_at_once() -> Iterator[None]:
    """Let an interrupt end the process at once, even within a call of LAPACK.

    Python handles an interrupt between its own instructions, and a decomposition of a large matrix
    is one instruction, which may take half a minute. In this block the operating system ends the
    process instead, and a shell reports 130. Nothing is cleaned up, so nothing may be written and
    nothing drawn in it.
    """
    # Only the main thread may set handlers. One that is not Python's own is somebody's decision,
    # such as nohup's to ignore interrupts.
    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
