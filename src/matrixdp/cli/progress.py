"""A progress bar for commands that stream files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(total: int, description: str) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error; the function that is yielded moves it on.

    Nothing is shown if standard error is not a terminal, so that logs stay readable.
    """
    # Not on standard output, which belongs to the result.
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=total)
        yield lambda count: bar.update(task, advance=count)
