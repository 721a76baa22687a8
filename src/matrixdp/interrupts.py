"""Interrupts that wait for the end of a block, and those of programs that release something.

An interrupt says that nothing is to be released. After a release it comes too late: a program that
ended by it would say that nothing is out, and its user would release again. Whoever sets the
handler of a process decides what an interrupt means, so a program sets `ProgramInterrupts`. A
library never does, and its users keep their interrupts.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["ProgramInterrupts", "interrupts_held"]


class ProgramInterrupts:
    """The handler of a program that releases something and ends: interrupts raise until then.

    `interrupts_held` replaces it when a release is published: the system itself ignores interrupts
    from then on, also while Python shuts down, when no handler of Python is called any more.

    Attributes
    ----------
    came : bool
        Whether an interrupt came. If an error follows, it may be what became of the interrupt.
    """

    def __init__(self) -> None:
        self.came = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt."""
        self.came = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt again if one was raised before and forgotten.

        Python prints and forgets what is raised in callbacks, of which every import makes some.
        """
        if self.came:
            raise KeyboardInterrupt


@contextmanager
def interrupts_held(*, release: bool = False) -> Iterator[None]:
    """Let an interrupt wait until the block has ended.

    A block that fails takes the interrupt with it: there is an error already. In a program, the
    block is not entered if an interrupt was forgotten before.

    Parameters
    ----------
    release : bool, optional
        Whether the block publishes a release. In a program, interrupts are ignored from the end of
        the block on, also one that waited.
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
    after = former
    try:
        if isinstance(former, ProgramInterrupts):
            former.check()
        yield
        if release and isinstance(former, ProgramInterrupts):
            after = signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, after)
    if came:
        # Whoever set the former handler decides what an interrupt means.
        signal.raise_signal(signal.SIGINT)


def __dir__() -> list[str]:
    return __all__
