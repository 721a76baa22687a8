"""One line that says what a command is doing.

It has a file of its own, since progress bars are slow to import.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

__all__ = ["status_line"]


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Show one line of text on standard error, if that is a terminal; it is wiped out at the end.

    The function that is yielded replaces the text.
    """
    terminal = Console(stderr=True).is_terminal
    shown = ""

    def show(text: str) -> None:
        nonlocal shown
        if terminal:
            # Padded, so that nothing is left of a longer text.
            sys.stderr.write(f"\r{text:<{len(shown)}}")
            sys.stderr.flush()
            shown = text

    try:
        yield show
    finally:
        show("")
        show("")
