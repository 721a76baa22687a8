"""A progress bar for commands that stream files or compute for long."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.progress import Progress

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(
    total: float | None, description: str, *, after: float = 0.0
) -> Iterator[Callable[[float], None]]:
    """Show a progress bar on standard error; the function that is yielded moves it on.

    Nothing is shown if standard error is not a terminal, so that logs stay readable, nor if all is
    done within ``after`` seconds. A terminal that goes away changes nothing about the work.
    """
    # Not on standard output, which belongs to the result.
    console = Console(stderr=True)
    bar = Progress(console=console, disable=not console.is_terminal)
    task = bar.add_task(description, total=total)

    # Where a terminal was closed, a bar that failed would end a command whose release is out.
    def start() -> None:
        with suppress(OSError):
            bar.start()

    # A thread of its own, because long computations do not call back in between.
    later = threading.Timer(after, start)
    later.daemon = True
    if after > 0.0:
        later.start()
    else:
        start()
    try:
        yield lambda count: bar.update(task, advance=count)
    finally:
        later.cancel()
        if later.is_alive():
            later.join()  # it may be starting the bar, which nothing would stop then
        if bar.live.is_started:
            with suppress(OSError):
                bar.stop()
